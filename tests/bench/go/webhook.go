package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// The keys of core/marks/wellknown.py.
const (
	markLabel         = "kube-ebb.node-restriction.kubernetes.io/mark"
	detailsAnnotation = "kube-ebb.io/mark"
	taintKey          = "status-taint.cluster-autoscaler.kubernetes.io/kube-ebb"
)

const (
	apiVersion = "admission.k8s.io/v1"
	kind       = "AdmissionReview"
	kubelets   = "system:nodes"
)

var isMark = map[string]bool{"PreferNoSchedule": true, "NoSchedule": true}

// admissionReview has the used fields of k8s.io/api admission/v1.
type admissionReview struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Request    *admissionRequest `json:"request"`
}

type admissionRequest struct {
	UID         string `json:"uid"`
	Operation   string `json:"operation"`
	SubResource string `json:"subResource"`
	UserInfo    struct {
		Groups []string `json:"groups"`
	} `json:"userInfo"`
	Object *node `json:"object"`
}

type node struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec *nodeSpec `json:"spec"`
}

type nodeSpec struct {
	Taints []taint `json:"taints"`
}

type taint struct {
	Key       string `json:"key"`
	Value     string `json:"value,omitempty"`
	Effect    string `json:"effect"`
	TimeAdded string `json:"timeAdded,omitempty"`
}

// details is the annotation of a mark; it is invalid if a field is missing.
type details struct {
	Since    *int64  `json:"since"`
	Deadline *int64  `json:"deadline"`
	Owner    *string `json:"owner"`
	Policy   *string `json:"policy"`
	Reason   *string `json:"reason"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

type reviewed struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     []byte `json:"patch,omitempty"` // base64 on the wire
}

func mutateNode(writer http.ResponseWriter, request *http.Request) {
	body, err := readBody(request)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	written, err := review(body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	answer(writer, written)
}

func review(body []byte) ([]byte, error) {
	var asked admissionReview
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	if asked.APIVersion != apiVersion || asked.Kind != kind {
		return nil, fmt.Errorf("%q %q is no review", asked.APIVersion, asked.Kind)
	}
	if asked.Request == nil || asked.Request.UID == "" {
		return nil, fmt.Errorf("request.uid is empty")
	}
	answered := reviewed{
		APIVersion: apiVersion,
		Kind:       kind,
		Response:   response{UID: asked.Request.UID, Allowed: true},
	}
	if operations := patch(asked.Request); operations != nil {
		written, err := json.Marshal(operations)
		if err != nil {
			return nil, err
		}
		answered.Response.PatchType = "JSONPatch"
		answered.Response.Patch = written
	}
	return json.Marshal(answered)
}

// patch returns nil if nothing changes or the request must not be changed.
func patch(request *admissionRequest) []operation {
	object := request.Object
	if object == nil || request.SubResource != "" {
		return nil
	}
	if object.Kind != "" && object.Kind != "Node" {
		return nil
	}
	switch request.Operation {
	case "CREATE":
	case "UPDATE":
		if slices.Contains(request.UserInfo.Groups, kubelets) {
			return nil
		}
	default:
		return nil
	}
	var before []taint
	if object.Spec != nil {
		before = object.Spec.Taints
	}
	after := desiredTaints(object, before)
	if slices.Equal(before, after) {
		return nil
	}
	if object.Spec == nil {
		return []operation{{"add", "/spec", nodeSpec{Taints: after}}}
	}
	return []operation{{"add", "/spec/taints", after}}
}

// desiredTaints is desired_taints of core/marks/taints.py: other taints remain unchanged.
func desiredTaints(object *node, before []taint) []taint {
	after := make([]taint, 0, len(before)+1)
	effect := object.Metadata.Labels[markLabel]
	if !isMark[effect] {
		for _, one := range before {
			if one.Key != taintKey {
				after = append(after, one)
			}
		}
		return after
	}
	since := markedSince(object, before)
	ours := taint{Key: taintKey, Value: strconv.FormatInt(since, 10), Effect: effect}
	placed := false
	for _, one := range before {
		if one.Key != taintKey {
			after = append(after, one)
		} else if !placed {
			if one.Value == ours.Value && one.Effect == ours.Effect {
				ours = one // keeps its timeAdded
			}
			after = append(after, ours)
			placed = true
		}
	}
	if !placed {
		after = append(after, ours)
	}
	return after
}

// markedSince returns Unix seconds from the details, else from the taint, else 0.
func markedSince(object *node, before []taint) int64 {
	var found details
	text := object.Metadata.Annotations[detailsAnnotation]
	if json.Unmarshal([]byte(text), &found) == nil && found.whole() {
		return *found.Since
	}
	for _, one := range before {
		if one.Key == taintKey && len(one.Value) < 16 {
			if since, err := strconv.ParseUint(one.Value, 10, 63); err == nil {
				return int64(since)
			}
		}
	}
	return 0
}

func (d *details) whole() bool {
	return d.Since != nil && d.Deadline != nil && d.Owner != nil && d.Policy != nil &&
		d.Reason != nil
}
