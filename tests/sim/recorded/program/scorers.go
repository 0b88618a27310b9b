// Copied into kube-scheduler's package noderesources, so that main.go can ask what is not exported.

package noderesources

import "k8s.io/kubernetes/pkg/scheduler/apis/config"

// Recorded says what the three scorers say of cpu and memory at equal weights.
func Recorded(requested, allocated, allocatable []int64) (least, most, balanced int64) {
	resources := []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	return leastResourceScorer(resources)(requested, allocated, allocatable),
		mostResourceScorer(resources)(requested, allocated, allocatable),
		balancedResourceScorer(requested, allocated, allocatable)
}
