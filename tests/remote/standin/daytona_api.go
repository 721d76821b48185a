package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Daytona's control plane and its proxy to toolboxes, from the published OpenAPI documents. Sandboxes are containers of a real Engine.

type sandbox struct {
	ID               string            `json:"id"`
	OrganizationID   string            `json:"organizationId"`
	Name             string            `json:"name"`
	Snapshot         string            `json:"snapshot,omitempty"`
	User             string            `json:"user"`
	Env              map[string]string `json:"env"`
	Labels           map[string]string `json:"labels"`
	Public           bool              `json:"public"`
	NetworkBlockAll  bool              `json:"networkBlockAll"`
	NetworkAllowList string            `json:"networkAllowList,omitempty"`
	DomainAllowList  string            `json:"domainAllowList,omitempty"`
	Target           string            `json:"target"`
	CPU              float64           `json:"cpu"`
	GPU              float64           `json:"gpu"`
	Memory           float64           `json:"memory"`
	Disk             float64           `json:"disk"`
	State            string            `json:"state"`
	ErrorReason      string            `json:"errorReason,omitempty"`
	AutoStop         float64           `json:"autoStopInterval"`
	AutoPause        float64           `json:"autoPauseInterval"`
	AutoArchive      float64           `json:"autoArchiveInterval"`
	AutoDelete       float64           `json:"autoDeleteInterval"`
	CreatedAt        time.Time         `json:"createdAt"`
	UpdatedAt        time.Time         `json:"updatedAt"`
	SandboxClass     string            `json:"sandboxClass"`
	ToolboxProxyURL  string            `json:"toolboxProxyUrl"`

	image string
	open  int       // requests to it
	used  time.Time // the last request to it, which is what the timer counts from
	proxy *httputil.ReverseProxy
}

type daytonaSnapshot struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

type daytonaAPI struct {
	key, folder, self, base string
	mu                      sync.Mutex
	boxes                   map[string]*sandbox
	snapshots               map[string]*daytonaSnapshot // by name
}

func docker(words ...string) (string, error) {
	var out, bad bytes.Buffer
	c := exec.Command("docker", words...)
	c.Stdout, c.Stderr = &out, &bad
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", words[0], err, strings.TrimSpace(bad.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func refuse(w http.ResponseWriter, r *http.Request, status int, format string, args ...any) {
	writeJSON(w, status, map[string]any{"path": r.URL.Path, "timestamp": time.Now().UTC().Format(time.RFC3339Nano), "statusCode": status,
		"error": http.StatusText(status), "message": fmt.Sprintf(format, args...)})
}

func daytonaAPIMain(args []string) error {
	a := &daytonaAPI{boxes: map[string]*sandbox{}, snapshots: map[string]*daytonaSnapshot{}}
	f := flag.NewFlagSet("daytona-api", flag.ContinueOnError)
	port := f.Int("port", 0, "of 127.0.0.1")
	f.StringVar(&a.key, "key", "", "the only key that is taken")
	f.StringVar(&a.folder, "folder", "", "for sockets of sandboxes")
	if err := f.Parse(args); err != nil {
		return err
	}
	a.self, _ = os.Executable()
	a.base = fmt.Sprintf("http://127.0.0.1:%d", *port)
	mux := http.NewServeMux()
	route := func(pattern string, fn func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc(pattern, a.guard(fn))
	}
	mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, map[string]string{"status": "ok"}) })
	route("POST /api/sandbox", a.create)
	route("GET /api/sandbox", a.list)
	route("GET /api/sandbox/{id}", a.get)
	route("DELETE /api/sandbox/{id}", a.remove)
	route("POST /api/sandbox/{id}/start", a.start)
	route("POST /api/sandbox/{id}/stop", a.stop)
	route("POST /api/sandbox/{id}/pause", a.pause)
	route("POST /api/sandbox/{id}/snapshot", a.snapshot)
	route("POST /api/sandbox/{id}/network-settings", a.network)
	route("POST /api/sandbox/{id}/last-activity", a.touch)
	route("POST /api/sandbox/{id}/autostop/{minutes}", a.timer)
	route("POST /api/sandbox/{id}/autopause/{minutes}", a.timer)
	route("PUT /api/sandbox/{id}/labels", a.labels)
	route("GET /api/sandbox/{id}/toolbox-proxy-url", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, map[string]string{"url": a.base + "/toolbox"})
	})
	route("GET /api/snapshots/{id}", a.getSnapshot)
	route("DELETE /api/snapshots/{id}", a.removeSnapshot)
	mux.HandleFunc("/toolbox/{id}/", a.toolbox)
	// A wrong path is the dashboard's: a page with status 200.
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			refuse(w, r, 404, "Cannot %s %s", r.Method, r.URL.Path)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>Daytona</title>")
	})
	go a.stopIdle()
	return http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), mux)
}

func (a *daytonaAPI) authorized(r *http.Request) bool {
	return r.Header.Get("Authorization") == "Bearer "+a.key
}

func (a *daytonaAPI) guard(fn http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.authorized(r) {
			refuse(w, r, 401, "Unauthorized")
			return
		}
		fn(w, r)
	}
}

// find takes an id or a name; what is destroyed has lost its name.
func (a *daytonaAPI) find(idOrName string) *sandbox {
	if b := a.boxes[idOrName]; b != nil {
		return b
	}
	for _, b := range a.boxes {
		if b.Name == idOrName {
			return b
		}
	}
	return nil
}

func (a *daytonaAPI) tell(w http.ResponseWriter, b *sandbox) { writeJSON(w, 200, b) }

// ---- creation ----

type createSandbox struct {
	Name             string            `json:"name"`
	Snapshot         string            `json:"snapshot"`
	User             string            `json:"user"`
	Env              map[string]string `json:"env"`
	Labels           map[string]string `json:"labels"`
	Public           bool              `json:"public"`
	NetworkBlockAll  bool              `json:"networkBlockAll"`
	NetworkAllowList string            `json:"networkAllowList"`
	DomainAllowList  string            `json:"domainAllowList"`
	Target           string            `json:"target"`
	CPU              *float64          `json:"cpu"`
	GPU              *float64          `json:"gpu"`
	Memory           *float64          `json:"memory"`
	Disk             *float64          `json:"disk"`
	AutoStop         *float64          `json:"autoStopInterval"`
	AutoPause        *float64          `json:"autoPauseInterval"`
	AutoArchive      *float64          `json:"autoArchiveInterval"`
	AutoDelete       *float64          `json:"autoDeleteInterval"`
	TTL              *float64          `json:"ttlMinutes"`
	Volumes          []any             `json:"volumes"`
	Secrets          []any             `json:"secrets"`
	BuildInfo        *struct {
		DockerfileContent string   `json:"dockerfileContent"`
		ContextHashes     []string `json:"contextHashes"`
	} `json:"buildInfo"`
	LinkedSandbox string `json:"linkedSandbox"`
}

const gigabytesMax = 64 // of one sandbox: megabytes sent as gigabytes are refused, as the service does

func whole(v *float64, max float64) bool {
	return v == nil || (*v == float64(int(*v)) && *v > 0 && *v <= max)
}

func (q *createSandbox) wrong() string {
	switch {
	case q.Snapshot != "" && q.BuildInfo != nil:
		return "snapshot and buildInfo exclude each other"
	case !whole(q.CPU, 32) || !whole(q.Memory, gigabytesMax) || !whole(q.Disk, 1024):
		return "cpu is whole cores, memory and disk are whole gigabytes, within the organization's limits"
	case q.Snapshot != "" && (q.CPU != nil || q.Memory != nil || q.Disk != nil):
		return "Cannot specify Sandbox resources when using a snapshot"
	case q.AutoPause != nil && *q.AutoPause > 0:
		return "Auto-pause is not supported for this sandbox class"
	case domainsWrong(q.DomainAllowList):
		return "domainAllowList must be a comma-separated list of domains"
	case q.AutoStop != nil && *q.AutoStop < 0:
		return "autoStopInterval must not be negative"
	case q.BuildInfo != nil && !strings.HasPrefix(q.BuildInfo.DockerfileContent, "FROM "):
		return "the Dockerfile must begin with FROM"
	}
	return ""
}

// Commas between domains; an address is none.
func domainsWrong(list string) bool {
	for _, d := range strings.Split(list, ",") {
		if list != "" && (net.ParseIP(d) != nil || !regexp.MustCompile(`^(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`).MatchString(d)) {
			return true
		}
	}
	return false
}

func number(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

func (a *daytonaAPI) create(w http.ResponseWriter, r *http.Request) {
	var q createSandbox
	if err := decode(r, &q); err != nil {
		refuse(w, r, 400, "%v", err)
		return
	}
	if why := q.wrong(); why != "" {
		refuse(w, r, 400, "%s", why)
		return
	}
	id := uuid()
	if q.Name == "" {
		q.Name = id
	}
	image := os.Getenv("MANGO_DOCKER_IMAGE")
	if q.BuildInfo != nil {
		image = strings.TrimSpace(strings.TrimPrefix(strings.SplitN(q.BuildInfo.DockerfileContent, "\n", 2)[0], "FROM "))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.find(q.Name) != nil {
		refuse(w, r, 409, "Sandbox with name %s already exists", q.Name)
		return
	}
	if q.Snapshot != "" {
		s := a.snapshots[q.Snapshot]
		if s == nil || s.State != "active" {
			refuse(w, r, 400, "Snapshot %s not found", q.Snapshot)
			return
		}
		image = "daytona-standin:" + s.ID
	}
	now := time.Now().UTC()
	b := &sandbox{ID: id, OrganizationID: "org", Name: q.Name, Snapshot: q.Snapshot, User: "daytona", Env: q.Env, Labels: q.Labels, Public: q.Public,
		NetworkBlockAll: q.NetworkBlockAll, NetworkAllowList: q.NetworkAllowList, DomainAllowList: q.DomainAllowList, Target: q.Target,
		CPU: number(q.CPU, 1), Memory: number(q.Memory, 1), Disk: number(q.Disk, 3), State: "creating", AutoStop: number(q.AutoStop, 15),
		AutoArchive: number(q.AutoArchive, 7*24*60), AutoDelete: number(q.AutoDelete, -1), CreatedAt: now, UpdatedAt: now,
		SandboxClass: "container", ToolboxProxyURL: a.base + "/toolbox", image: image, used: now}
	if b.Env == nil {
		b.Env = map[string]string{}
	}
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	socket := filepath.Join(a.folder, id, "s")
	b.proxy = &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "daemon"})
			p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, "/toolbox/"+id)
			p.Out.URL.RawPath = ""
			p.Out.Header.Del("Authorization")
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			refuse(w, r, 502, "the sandbox does not answer")
		},
	}
	a.boxes[id] = b
	copied := *b
	go a.make(&copied)
	a.tell(w, b)
}

func uuid() string {
	h := randomID()
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (a *daytonaAPI) set(id, state, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.boxes[id]
	if b.State == "destroying" || b.State == "destroyed" {
		return
	}
	b.State, b.ErrorReason, b.UpdatedAt = state, why, time.Now().UTC()
}

func limited(b *sandbox) bool {
	return b.NetworkBlockAll || b.DomainAllowList != "" || b.NetworkAllowList != ""
}

func (a *daytonaAPI) make(b *sandbox) {
	folder := filepath.Join(a.folder, b.ID)
	err := os.MkdirAll(folder, 0o755)
	network := "bridge"
	if limited(b) {
		network = "none" // nobody is reached; the service lets the listed through
	}
	if err == nil {
		_, err = docker("create", "--name", "daytona-"+b.ID, "--label", "daytona.sandbox="+b.ID, "--network", network,
			"--memory", fmt.Sprintf("%dg", int(b.Memory)), "--env", "HOME=/home/daytona", "--volume", folder+":/run/standin",
			"--volume", a.self+":/usr/local/bin/daytona-standin:ro", b.image,
			"sh", "-c", "/usr/local/bin/daytona-standin daytona-daemon /run/standin/s & wait $!")
	}
	if err == nil {
		err = a.up(b.ID)
	}
	if err != nil {
		a.set(b.ID, "error", err.Error())
		return
	}
	a.set(b.ID, "started", "")
}

// up starts the container and waits for the toolbox in it.
func (a *daytonaAPI) up(id string) error {
	socket := filepath.Join(a.folder, id, "s")
	_ = os.Remove(socket)
	if _, err := docker("start", "daytona-"+id); err != nil {
		return err
	}
	for i := 0; i < 600; i++ {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the daemon did not start")
}

// ---- one sandbox ----

// with runs fn on the sandbox of the path, in one of the states; any state when none is given.
func (a *daytonaAPI) with(w http.ResponseWriter, r *http.Request, states []string, fn func(b *sandbox)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.find(r.PathValue("id"))
	if b == nil {
		refuse(w, r, 404, "Sandbox with ID or name %s not found", r.PathValue("id"))
		return
	}
	ok := states == nil
	for _, s := range states {
		ok = ok || s == b.State
	}
	if !ok && strings.HasSuffix(b.State, "ing") {
		refuse(w, r, 409, "Sandbox state change in progress")
		return
	}
	if !ok {
		refuse(w, r, 400, "Sandbox is not in a state for that: %s", b.State)
		return
	}
	fn(b)
}

func (a *daytonaAPI) get(w http.ResponseWriter, r *http.Request) {
	if name := unknownQuery(r.URL.Query(), "verbose"); name != "" {
		refuse(w, r, 400, "property %s should not exist", name)
		return
	}
	a.with(w, r, nil, func(b *sandbox) { a.tell(w, b) })
}

func (a *daytonaAPI) remove(w http.ResponseWriter, r *http.Request) {
	a.with(w, r, []string{"started", "stopped", "paused", "error", "archived"}, func(b *sandbox) {
		b.State = "destroying"
		id := b.ID
		go func() {
			_, err := docker("rm", "-f", "-v", "daytona-"+id)
			_ = os.RemoveAll(filepath.Join(a.folder, id))
			a.mu.Lock()
			defer a.mu.Unlock()
			if err == nil {
				a.boxes[id].State = "destroyed"
				a.boxes[id].Name = "DESTROYED_" + a.boxes[id].Name + "_" + id
			}
		}()
		a.tell(w, b)
	})
}

func (a *daytonaAPI) change(b *sandbox, now, then string, fn func(id string) error) {
	b.State = now
	id := b.ID
	go func() {
		if err := fn(id); err != nil {
			a.set(id, "error", err.Error())
			return
		}
		a.set(id, then, "")
	}()
}

func (a *daytonaAPI) start(w http.ResponseWriter, r *http.Request) {
	a.with(w, r, []string{"stopped", "paused", "archived"}, func(b *sandbox) {
		paused := b.State == "paused"
		a.change(b, "starting", "started", func(id string) error {
			a.mu.Lock()
			a.boxes[id].used = time.Now()
			a.mu.Unlock()
			if paused {
				_, err := docker("unpause", "daytona-"+id)
				return err
			}
			return a.up(id)
		})
		a.tell(w, b)
	})
}

func (a *daytonaAPI) down(id string) error {
	_, err := docker("stop", "-t", "0", "daytona-"+id)
	return err
}

func (a *daytonaAPI) stop(w http.ResponseWriter, r *http.Request) {
	if name := unknownQuery(r.URL.Query(), "force"); name != "" {
		refuse(w, r, 400, "property %s should not exist", name)
		return
	}
	a.with(w, r, []string{"started"}, func(b *sandbox) {
		a.change(b, "stopping", "stopped", a.down)
		a.tell(w, b)
	})
}

// Containers cannot be paused there; machines can.
func (a *daytonaAPI) pause(w http.ResponseWriter, r *http.Request) {
	a.with(w, r, nil, func(b *sandbox) { refuse(w, r, 400, "Pause is not supported for sandbox class %s", b.SandboxClass) })
}

func (a *daytonaAPI) snapshot(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Name          string `json:"name"`
		IncludeMemory bool   `json:"includeMemory"`
	}
	if err := decode(r, &q); err != nil || q.Name == "" || q.IncludeMemory {
		refuse(w, r, 400, "name is required, memory is not supported: %v", err)
		return
	}
	a.with(w, r, []string{"started", "stopped"}, func(b *sandbox) {
		if a.snapshots[q.Name] != nil {
			refuse(w, r, 409, "Snapshot with name %s already exists", q.Name)
			return
		}
		s := &daytonaSnapshot{ID: uuid(), Name: q.Name, State: "snapshotting"}
		a.snapshots[q.Name] = s
		before := b.State
		a.change(b, "snapshotting", before, func(id string) error {
			_, err := docker("commit", "daytona-"+id, "daytona-standin:"+s.ID)
			a.mu.Lock()
			defer a.mu.Unlock()
			s.State = "active"
			if err != nil {
				s.State = "error"
			}
			return err
		})
		a.tell(w, b)
	})
}

func (a *daytonaAPI) getSnapshot(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.snapshots {
		if s.ID == r.PathValue("id") || s.Name == r.PathValue("id") {
			writeJSON(w, 200, s)
			return
		}
	}
	refuse(w, r, 404, "Snapshot %s not found", r.PathValue("id"))
}

func (a *daytonaAPI) removeSnapshot(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.snapshots {
		if s.ID == r.PathValue("id") {
			delete(a.snapshots, s.Name)
			go func() { _, _ = docker("rmi", "-f", "daytona-standin:"+s.ID) }()
			w.WriteHeader(200)
			return
		}
	}
	refuse(w, r, 404, "Snapshot %s not found", r.PathValue("id"))
}

func (a *daytonaAPI) network(w http.ResponseWriter, r *http.Request) {
	var q struct {
		NetworkBlockAll  *bool   `json:"networkBlockAll"`
		NetworkAllowList *string `json:"networkAllowList"`
		DomainAllowList  *string `json:"domainAllowList"`
	}
	if err := decode(r, &q); err != nil {
		refuse(w, r, 400, "%v", err)
		return
	}
	if q.DomainAllowList != nil && domainsWrong(*q.DomainAllowList) {
		refuse(w, r, 400, "domainAllowList must be a comma-separated list of domains")
		return
	}
	a.with(w, r, []string{"started"}, func(b *sandbox) {
		before := limited(b)
		if q.NetworkBlockAll != nil {
			b.NetworkBlockAll = *q.NetworkBlockAll
		}
		if q.NetworkAllowList != nil {
			b.NetworkAllowList = *q.NetworkAllowList
		}
		if q.DomainAllowList != nil {
			b.DomainAllowList = *q.DomainAllowList
		}
		var err error
		if now := limited(b); now && !before {
			_, err = docker("network", "disconnect", "bridge", "daytona-"+b.ID)
		} else if !now && before {
			_, _ = docker("network", "disconnect", "none", "daytona-"+b.ID)
			_, err = docker("network", "connect", "bridge", "daytona-"+b.ID)
		}
		if err != nil {
			refuse(w, r, 500, "%v", err)
			return
		}
		a.tell(w, b)
	})
}

func (a *daytonaAPI) touch(w http.ResponseWriter, r *http.Request) {
	a.with(w, r, nil, func(b *sandbox) {
		b.used = time.Now()
		w.WriteHeader(201)
	})
}

func (a *daytonaAPI) timer(w http.ResponseWriter, r *http.Request) {
	minutes, err := strconv.Atoi(r.PathValue("minutes"))
	if err != nil || minutes < 0 {
		refuse(w, r, 400, "an interval is minutes")
		return
	}
	a.with(w, r, nil, func(b *sandbox) {
		if strings.Contains(r.URL.Path, "/autopause/") && minutes > 0 {
			refuse(w, r, 400, "Auto-pause is not supported for this sandbox class")
			return
		}
		b.AutoStop = float64(minutes)
		a.tell(w, b)
	})
}

func (a *daytonaAPI) labels(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Labels map[string]string `json:"labels"`
	}
	if err := decode(r, &q); err != nil {
		refuse(w, r, 400, "%v", err)
		return
	}
	a.with(w, r, nil, func(b *sandbox) {
		b.Labels = q.Labels
		writeJSON(w, 200, q)
	})
}

func (a *daytonaAPI) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if name := unknownQuery(q, "cursor", "limit", "id", "name", "labels", "states", "sort", "order", "includeErroredDeleted"); name != "" {
		refuse(w, r, 400, "property %s should not exist", name)
		return
	}
	limit, labels := 100, map[string]string{}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 200 {
			refuse(w, r, 400, "limit must not be greater than 200")
			return
		}
		limit = n
	}
	if v := q.Get("labels"); v != "" {
		if err := json.Unmarshal([]byte(v), &labels); err != nil {
			refuse(w, r, 400, "Invalid labels JSON")
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []*sandbox{}
	for _, b := range a.boxes {
		ok := b.State != "destroyed" && b.ID > q.Get("cursor")
		for k, v := range labels {
			ok = ok && b.Labels[k] == v
		}
		if ok {
			all = append(all, b)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	var next any
	if len(all) > limit {
		all = all[:limit]
		next = all[limit-1].ID
	}
	writeJSON(w, 200, map[string]any{"items": all, "nextCursor": next})
}

// ---- the timer ----

// use notes a request when it comes and when it has gone; while one is open, the proxy goes on noting it.
func (a *daytonaAPI) use(b *sandbox) func() {
	note := func(open int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		b.open += open
		b.used = time.Now()
	}
	note(1)
	return func() { note(-1) }
}

func (a *daytonaAPI) stopIdle() {
	for range time.Tick(time.Second) {
		a.mu.Lock()
		for _, b := range a.boxes {
			if b.State == "started" && b.open == 0 && b.AutoStop > 0 && time.Since(b.used) > time.Duration(b.AutoStop)*time.Minute {
				a.change(b, "stopping", "stopped", a.down)
			}
		}
		a.mu.Unlock()
	}
}

// ---- the proxy ----

func (a *daytonaAPI) toolbox(w http.ResponseWriter, r *http.Request) {
	if !a.authorized(r) {
		refuse(w, r, 401, "Unauthorized")
		return
	}
	a.mu.Lock()
	b := a.boxes[r.PathValue("id")]
	running := b != nil && (b.State == "started" || b.State == "snapshotting")
	a.mu.Unlock()
	if b == nil {
		refuse(w, r, 404, "sandbox not found")
		return
	}
	if running {
		defer a.use(b)()
	}
	if !running {
		refuse(w, r, 400, "bad request: failed to get runner info: no IP address found. Is the Sandbox started?")
		return
	}
	b.proxy.ServeHTTP(w, r)
}
