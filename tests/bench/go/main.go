// Command peer serves what Ebb's two programs serve, on Go's net/http: the
// peer of the benchmarks.
//
//	peer -extender ADDR [-names FILE]
//	peer -webhook ADDR -cert FILE -key FILE
//
// It prints one line a server, "extender PORT" or "webhook PORT", as soon as it listens; both may
// be asked for at once. Faults end it with one line and 2.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

func main() {
	extenderAddr := flag.String("extender", "", "serve POST /prioritize on this `address`")
	names := flag.String("names", "", "JSON `file`: marked nodes' names to scores; others get 10")
	webhookAddr := flag.String("webhook", "", "serve POST /mutate-node over TLS on this `address`")
	cert := flag.String("cert", "", "PEM `file`")
	key := flag.String("key", "", "PEM `file`")
	flag.Parse()

	ended := make(chan error)
	if *extenderAddr != "" {
		scores, err := readScores(*names)
		check(err)
		server := newServer("POST /prioritize", &extender{scores})
		listener := listen("extender", *extenderAddr)
		go func() { ended <- server.Serve(listener) }()
	}
	if *webhookAddr != "" {
		server := newServer("POST /mutate-node", http.HandlerFunc(mutateNode))
		listener := listen("webhook", *webhookAddr)
		go func() { ended <- server.ServeTLS(listener, *cert, *key) }()
	}
	if *extenderAddr == "" && *webhookAddr == "" {
		flag.Usage()
		os.Exit(2)
	}
	check(<-ended)
}

// newServer returns a server of HTTP/1.1, which is what the API server speaks to webhooks.
func newServer(pattern string, handler http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle(pattern, handler)
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	return server
}

// listen opens the socket and prints its port, which is of use when port 0 was asked for.
func listen(what, address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	check(err)
	fmt.Println(what, listener.Addr().(*net.TCPAddr).Port)
	return listener
}

// readBody reads a request's body into a buffer of the announced size.
func readBody(request *http.Request) ([]byte, error) {
	if request.ContentLength < 0 {
		return io.ReadAll(request.Body)
	}
	body := make([]byte, request.ContentLength)
	_, err := io.ReadFull(request.Body, body)
	return body, err
}

// answer writes a complete body, so that the connection is kept.
func answer(writer http.ResponseWriter, body []byte) {
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = writer.Write(body) // a caller that has gone needs no answer
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(2)
	}
}
