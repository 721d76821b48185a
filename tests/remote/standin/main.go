// Stand-ins for what no registry carries of the services: programs that run in a sandbox or beside it, and one control plane.
// They run real processes and keep real files, are written from the published specifications, and refuse what those do not allow.
//
//	standin execd                  OpenSandbox: the program in a sandbox, on port 44772
//	standin egress                 OpenSandbox: the network filter beside a sandbox, on port 18080
//	standin daytona-api FLAGS      Daytona: control plane and toolbox proxy; sandboxes are containers
//	standin daytona-daemon SOCKET  Daytona: the toolbox in a sandbox
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: standin execd|egress|daytona-api|daytona-daemon")
		os.Exit(64)
	}
	var err error
	switch os.Args[1] {
	case "execd":
		err = execdMain()
	case "egress":
		err = egressMain()
	case "daytona-api":
		err = daytonaAPIMain(os.Args[2:])
	case "daytona-daemon":
		err = daytonaDaemonMain(os.Args[2:])
	default:
		err = fmt.Errorf("unknown part %q", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// decode reads a body that must be exactly one JSON value with known members.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something stands behind the JSON value")
	}
	return nil
}

// unknownQuery names the first query parameter that is none of these.
func unknownQuery(q url.Values, known ...string) string {
	for name := range q {
		ok := false
		for _, k := range known {
			ok = ok || k == name
		}
		if !ok {
			return name
		}
	}
	return ""
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
