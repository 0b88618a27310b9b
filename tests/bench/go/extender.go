package main

import (
	"encoding/json"
	"net/http"
	"os"
)

// scoreUnmarked is the score of unmarked nodes.
const scoreUnmarked = 10

// extenderArgs has the used fields of k8s.io/kube-scheduler extender/v1; the rest is skipped, as
// Ebb does not decode the pod either.
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
}

// readScores reads the scores of marked nodes; without a file no node is marked.
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
