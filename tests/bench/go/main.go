// Command peer implements the extender and the webhook of Ebb on Go's
// net/http, for comparison in benchmarks.
//
//	peer -extender ADDR [-names FILE]
//	peer -webhook ADDR -cert FILE -key FILE
//
// It prints a line per server, "extender PORT" or "webhook PORT", when it listens. On an error it
// prints one line and exits with 2.
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

// newServer returns an HTTP/1.1 server, the version that the API server uses for webhooks.
func newServer(pattern string, handler http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle(pattern, handler)
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	return server
}

// listen opens the socket and prints its port, which matters if port 0 is requested.
func listen(what, address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	check(err)
	fmt.Println(what, listener.Addr().(*net.TCPAddr).Port)
	return listener
}

// readBody reads the body of a request into a buffer of its Content-Length.
func readBody(request *http.Request) ([]byte, error) {
	if request.ContentLength < 0 {
		return io.ReadAll(request.Body)
	}
	body := make([]byte, request.ContentLength)
	_, err := io.ReadFull(request.Body, body)
	return body, err
}

// answer writes a complete body, so that the connection is reused.
func answer(writer http.ResponseWriter, body []byte) {
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = writer.Write(body) // the client may have disconnected
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(2)
	}
}
