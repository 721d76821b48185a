package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

// The network filter beside an OpenSandbox sandbox, from specs/egress-api.yaml: it shares the sandbox's network, drops what leaves
// it, and lets through what its rules allow. Names are resolved when a rule comes; the real one watches the sandbox's DNS.

const egressPort = 18080

type egressRule struct {
	Action string `json:"action"`
	Target string `json:"target"`
}

type egressPolicy struct {
	DefaultAction string       `json:"defaultAction"`
	Egress        []egressRule `json:"egress"`
}

type egress struct {
	mu     sync.Mutex
	policy egressPolicy
	token  string
	mode   string
}

func (e *egress) apply() error {
	var b strings.Builder
	b.WriteString("table inet standin\ndelete table inet standin\ntable inet standin {\n chain out {\n  type filter hook output priority 0; ")
	if e.policy.DefaultAction == "allow" {
		b.WriteString("policy accept;\n")
	} else {
		b.WriteString("policy drop;\n  oif lo accept\n  ct state established,related accept\n")
	}
	for _, r := range e.policy.Egress {
		verdict := "accept"
		if r.Action == "deny" {
			verdict = "drop"
		}
		addresses, _ := net.LookupHost(strings.TrimPrefix(r.Target, "*."))
		for _, a := range addresses {
			family := "ip"
			if strings.Contains(a, ":") {
				family = "ip6"
			}
			fmt.Fprintf(&b, "  %s daddr %s %s\n", family, a, verdict)
		}
	}
	b.WriteString(" }\n}\n")
	if e.mode != "dns+nft" {
		return nil
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(b.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

func (e *egress) answer(w http.ResponseWriter) {
	mode := "deny_all"
	if e.policy.DefaultAction == "allow" {
		mode = "allow_all"
	}
	writeJSON(w, 200, map[string]any{"status": "ok", "mode": mode, "enforcementMode": e.mode, "policy": e.policy})
}

func ruleOK(r egressRule) bool {
	name := strings.TrimPrefix(r.Target, "*.")
	return (r.Action == "allow" || r.Action == "deny") && strings.Contains(name, ".") && !strings.ContainsAny(name, "/: *") && net.ParseIP(name) == nil
}

func (e *egress) change(w http.ResponseWriter, change func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := change(); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	if err := e.apply(); err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	e.answer(w)
}

func (e *egress) patch(w http.ResponseWriter, r *http.Request) {
	var rules []egressRule
	if err := decode(r, &rules); err != nil || len(rules) == 0 {
		http.Error(w, fmt.Sprint("at least one rule: ", err), 400)
		return
	}
	e.change(w, func() error {
		seen := map[string]bool{}
		merged := []egressRule{}
		for _, r := range append(rules, e.policy.Egress...) {
			if !ruleOK(r) {
				return fmt.Errorf("%q is no target: a name, or a name with *. before it", r.Target)
			}
			if !seen[r.Target] {
				merged = append(merged, r)
			}
			seen[r.Target] = true
		}
		e.policy.Egress = merged
		return nil
	})
}

func (e *egress) remove(w http.ResponseWriter, r *http.Request) {
	var targets []string
	if err := decode(r, &targets); err != nil || len(targets) == 0 {
		http.Error(w, fmt.Sprint("at least one target: ", err), 400)
		return
	}
	e.change(w, func() error {
		kept := []egressRule{}
		for _, r := range e.policy.Egress {
			gone := false
			for _, t := range targets {
				gone = gone || t == r.Target
			}
			if !gone {
				kept = append(kept, r)
			}
		}
		e.policy.Egress = kept
		return nil
	})
}

func egressMain() error {
	e := &egress{token: os.Getenv("OPENSANDBOX_EGRESS_TOKEN"), mode: os.Getenv("OPENSANDBOX_EGRESS_MODE")}
	if err := json.Unmarshal([]byte(os.Getenv("OPENSANDBOX_EGRESS_RULES")), &e.policy); err != nil {
		return fmt.Errorf("OPENSANDBOX_EGRESS_RULES: %w", err)
	}
	if e.policy.DefaultAction == "" {
		e.policy.DefaultAction = "deny"
	}
	if e.policy.Egress == nil {
		e.policy.Egress = []egressRule{}
	}
	if err := e.apply(); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		os.Exit(0)
	}()
	mux := http.NewServeMux()
	guard := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if e.token != "" && r.Header.Get("OPENSANDBOX-EGRESS-AUTH") != e.token {
				http.Error(w, "unauthorized", 401)
				return
			}
			next(w, r)
		}
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) })
	mux.HandleFunc("GET /policy", guard(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.answer(w)
	}))
	mux.HandleFunc("PATCH /policy", guard(e.patch))
	mux.HandleFunc("DELETE /policy", guard(e.remove))
	return http.ListenAndServe(fmt.Sprintf(":%d", egressPort), mux)
}
