// Records what kube-scheduler's scorers and the ReplicaSet controller's order say of drawn cases.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"sort"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
)

type scored struct {
	Requested   []int64 `json:"requested"`
	Allocated   []int64 `json:"allocated"`
	Allocatable []int64 `json:"allocatable"`
	Least       int64   `json:"least"`
	Most        int64   `json:"most"`
	Balanced    int64   `json:"balanced"`
}

type replica struct {
	UID     string `json:"uid"`
	Node    string `json:"node"`
	Created int64  `json:"created"`
	Ready   int64  `json:"ready"`
	Cost    string `json:"cost"`
}

type ordered struct {
	Now   int64     `json:"now"`
	Pods  []replica `json:"pods"`
	Order []string  `json:"order"`
}

const start = 1_700_000_000

func score(chance *rand.Rand) scored {
	shapes := []int64{0, 1000, 4000, 16000, 32000, 96000, 104000, 128000}
	mib := []int64{0, 1024, 16384, 122880, 262144, 393216, 524288, 786432}
	cpu, memory := shapes[chance.Intn(8)], mib[chance.Intn(8)]*1024*1024
	whole := []int64{cpu, memory}
	used := []int64{chance.Int63n(cpu + 1), chance.Int63n(memory + 1)}
	if chance.Intn(3) == 0 {
		used[0] = cpu * chance.Int63n(21) / 20
		used[1] = memory * chance.Int63n(21) / 20
	}
	asked := []int64{used[0] + 50*chance.Int63n(100), used[1] + chance.Int63n(64)*1024*1024*512}
	for i := range whole {
		if whole[i] == 0 {
			used[i], asked[i] = 0, 0
		}
	}
	l, m, b := noderesources.Recorded(asked, used, whole)
	return scored{asked, used, whole, l, m, b}
}

func order(chance *rand.Rand) ordered {
	now := start + 1 + chance.Int63n(200_000)
	made := ordered{Now: now}
	count := 2 + chance.Intn(11)
	var pods []*v1.Pod
	var ranks []int
	perNode := map[string]int{}
	seen, created := map[int64]bool{}, map[int64]bool{}
	for i := 0; i < count; i++ {
		one := replica{UID: fmt.Sprintf("%016x", chance.Uint64()), Ready: -1}
		age := chance.Int63n(1 + []int64{3, 60, 3600, 200_000}[chance.Intn(4)])
		one.Created = max(now-age, start)
		if created[one.Created] {
			continue // no rule tells two such pods apart
		}
		created[one.Created] = true
		if chance.Intn(10) > 0 {
			one.Node = "n" + strconv.Itoa(chance.Intn(4))
			if chance.Intn(6) > 0 {
				one.Ready = one.Created + chance.Int63n(now-one.Created+1)
			}
		}
		if one.Ready >= 0 && seen[one.Ready] {
			one.Ready = -1
		}
		seen[one.Ready] = true
		switch chance.Intn(4) {
		case 0:
			one.Cost = strconv.Itoa(-1 - chance.Intn(3))
		case 1:
			one.Cost = []string{"5", "+5", "05", "x", "0", "-0", "2147483648", "-2147483648"}[chance.Intn(8)]
		}
		made.Pods = append(made.Pods, one)
		pods = append(pods, podOf(one))
		perNode[one.Node]++
	}
	for _, one := range made.Pods {
		ranks = append(ranks, perNode[one.Node])
	}
	sort.Sort(controller.ActivePodsWithRanks{Pods: pods, Rank: ranks, Now: metav1.Unix(now, 500_000_000)})
	for _, pod := range pods {
		made.Order = append(made.Order, string(pod.UID))
	}
	return made
}

func podOf(one replica) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID = types.UID(one.UID)
	pod.CreationTimestamp = metav1.NewTime(time.Unix(one.Created, 0))
	pod.Spec.NodeName = one.Node
	pod.Status.Phase = v1.PodPending
	if one.Node != "" {
		pod.Status.Phase = v1.PodRunning
	}
	if one.Cost != "" {
		pod.Annotations = map[string]string{"controller.kubernetes.io/pod-deletion-cost": one.Cost}
	}
	if one.Ready >= 0 {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(one.Ready, 0))}}
	}
	return pod
}

// lines writes a case a line, so that a change of one shows as one.
func lines(cases []any) {
	for i, one := range cases {
		text, err := json.Marshal(one)
		if err != nil {
			panic(err)
		}
		fmt.Print(string(text))
		if i < len(cases)-1 {
			fmt.Print(",")
		}
		fmt.Println()
	}
}

func main() {
	chance := rand.New(rand.NewSource(1))
	var scores, orders []any
	for i := 0; i < 200; i++ {
		scores = append(scores, score(chance))
	}
	for i := 0; i < 100; i++ {
		orders = append(orders, order(chance))
	}
	fmt.Println("{\"scores\": [")
	lines(scores)
	fmt.Println("], \"orders\": [")
	lines(orders)
	fmt.Println("]}")
}
