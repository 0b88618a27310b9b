package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
)

// scoreUnmarked is what every node gets that carries no mark.
const scoreUnmarked = 10

// extenderArgs has the fields that are used of k8s.io/kube-scheduler extender/v1, so that the rest
// is skipped: Ebb does not decode the pod either.
type extenderArgs struct {
	Nodes *struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	NodeNames []string
}

type hostPriority struct {
	Host  string
	Score int64
}

type extender struct {
	scores map[string]int64
	// short is the whole answer in compact mode, else empty.
	short []byte
}

func newExtender(scores map[string]int64, compact bool) *extender {
	made := &extender{scores: scores}
	if !compact {
		return made
	}
	list := []hostPriority{}
	for name, score := range scores {
		list = append(list, hostPriority{name, score - scoreUnmarked})
	}
	slices.SortFunc(list, func(a, b hostPriority) int { return strings.Compare(a.Host, b.Host) })
	short, err := json.Marshal(list)
	check(err)
	made.short = short
	return made
}

// readScores reads marked nodes' scores; no file: no node is marked.
func readScores(path string) (map[string]int64, error) {
	scores := map[string]int64{}
	if path == "" {
		return scores, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return scores, json.Unmarshal(text, &scores)
}

func (e *extender) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if e.short != nil {
		_, _ = io.Copy(io.Discard, request.Body) // so that the connection is kept
		answer(writer, e.short)
		return
	}
	body, err := readBody(request)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	var args extenderArgs
	if err := json.Unmarshal(body, &args); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	if args.NodeNames == nil && args.Nodes == nil {
		http.Error(writer, "neither NodeNames nor Nodes is given", http.StatusBadRequest)
		return
	}
	scored, err := json.Marshal(e.prioritize(&args))
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(writer, scored)
}

func (e *extender) prioritize(args *extenderArgs) []hostPriority {
	if args.NodeNames == nil {
		list := make([]hostPriority, 0, len(args.Nodes.Items))
		for at := range args.Nodes.Items {
			list = append(list, e.priority(args.Nodes.Items[at].Metadata.Name))
		}
		return list
	}
	list := make([]hostPriority, 0, len(args.NodeNames))
	for _, name := range args.NodeNames {
		list = append(list, e.priority(name))
	}
	return list
}

func (e *extender) priority(name string) hostPriority {
	if score, marked := e.scores[name]; marked {
		return hostPriority{name, score}
	}
	return hostPriority{name, scoreUnmarked}
}
