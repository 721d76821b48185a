package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The program in an OpenSandbox sandbox, from specs/execd-api.yaml and what its page says of the stream: bare JSON objects with a
// blank line between them, output cut into lines without their ends, bytes that are no UTF-8 replaced.

const (
	execdPort   = 44772
	tailEvery   = 100 * time.Millisecond
	pingEvery   = 3 * time.Second
	graceAtEnd  = 200 * time.Millisecond // the connection stays open so long behind the last event
	killAfter   = 3 * time.Second        // between SIGTERM and SIGKILL of an interrupt
	uploadInRAM = 32 << 20
)

type execCommand struct {
	cmd      *exec.Cmd
	running  bool
	exitCode int
	started  time.Time
	finished time.Time
	err      string
}

type execd struct {
	token    string
	mu       sync.Mutex
	commands map[string]*execCommand
}

func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

func execdError(w http.ResponseWriter, status int, code, format string, args ...any) {
	writeJSON(w, status, map[string]string{"code": code, "message": fmt.Sprintf(format, args...)})
}

func execdMain() error {
	e := &execd{token: os.Getenv("EXECD_ACCESS_TOKEN"), commands: map[string]*execCommand{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) })
	mux.HandleFunc("POST /command", e.run)
	mux.HandleFunc("DELETE /command", e.interrupt)
	mux.HandleFunc("GET /command/status/{id}", e.status)
	mux.HandleFunc("POST /files/upload", e.upload)
	mux.HandleFunc("GET /files/download", e.download)
	mux.HandleFunc("GET /files/info", e.info)
	mux.HandleFunc("DELETE /files", e.removeFiles)
	mux.HandleFunc("POST /files/mv", e.move)
	mux.HandleFunc("POST /files/permissions", e.permissions)
	mux.HandleFunc("GET /files/search", e.search)
	mux.HandleFunc("GET /directories/list", e.list)
	mux.HandleFunc("POST /directories", e.makeFolders)
	mux.HandleFunc("DELETE /directories", e.removeFolders)
	// What listens in the sandbox is reached through this program, itself included.
	mux.HandleFunc("/proxy/{port}/", func(w http.ResponseWriter, r *http.Request) {
		port := r.PathValue("port")
		to := &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
		p := httputil.NewSingleHostReverseProxy(to)
		p.FlushInterval = -1
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/proxy/"+port)
		r.URL.RawPath = ""
		p.ServeHTTP(w, r)
	})
	return http.ListenAndServe(fmt.Sprintf(":%d", execdPort), e.guard(mux))
}

func (e *execd) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.token != "" && !strings.HasPrefix(r.URL.Path, "/proxy/") && r.Header.Get("X-EXECD-ACCESS-TOKEN") != e.token {
			writeJSON(w, 401, map[string]string{"error": "invalid access token"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ---- commands ----

type runRequest struct {
	Command    string            `json:"command"`
	Cwd        string            `json:"cwd"`
	Background bool              `json:"background"`
	Timeout    *int64            `json:"timeout"`
	UID        *uint32           `json:"uid"`
	GID        *uint32           `json:"gid"`
	Envs       map[string]string `json:"envs"`
}

func shell() string {
	if _, err := exec.LookPath("bash"); err == nil {
		return "bash"
	}
	return "sh"
}

// events writes to the stream, one object at a time; a stream that is gone ends nothing.
type events struct {
	mu sync.Mutex
	w  io.Writer
	f  http.Flusher
}

func (v *events) send(m map[string]any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m["timestamp"] = time.Now().UnixMilli()
	b, _ := json.Marshal(m)
	_, _ = v.w.Write(append(b, '\n', '\n'))
	v.f.Flush()
}

// tail tells lines of a file as they come; an end of line is not told, an empty line is "\n".
type tail struct {
	path string
	at   int64
	cr   bool
	say  func(text string)
}

func (t *tail) look(last bool) {
	f, err := os.Open(t.path)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Seek(t.at, io.SeekStart)
	r := bufio.NewReader(f)
	var line bytes.Buffer
	for {
		b, err := r.ReadByte()
		if err != nil {
			break
		}
		t.at++
		if b != '\n' && b != '\r' {
			t.cr = false
			line.WriteByte(b)
			continue
		}
		if line.Len() > 0 {
			t.say(strings.ToValidUTF8(line.String(), "\uFFFD"))
		} else if b != '\n' || !t.cr {
			t.say("\n")
		}
		line.Reset()
		t.cr = b == '\r'
	}
	if line.Len() > 0 && last {
		t.say(strings.ToValidUTF8(line.String(), "\uFFFD"))
	} else {
		t.at -= int64(line.Len())
	}
}

func (e *execd) run(w http.ResponseWriter, r *http.Request) {
	var q runRequest
	if err := decode(r, &q); err != nil {
		execdError(w, 400, "INVALID_REQUEST_BODY", "%v", err)
		return
	}
	if q.Command == "" || (q.GID != nil && q.UID == nil) || (q.Timeout != nil && *q.Timeout < 0) {
		execdError(w, 400, "INVALID_REQUEST_BODY", "command is required, gid needs uid, timeout is not negative")
		return
	}
	id := randomID()
	cmd := exec.Command(shell(), "-c", q.Command)
	cmd.Dir = q.Cwd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if q.UID != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: *q.UID}
		if q.GID != nil {
			cmd.SysProcAttr.Credential.Gid = *q.GID
		}
	}
	cmd.Env = os.Environ()
	for k, v := range q.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	paths := [2]string{filepath.Join(os.TempDir(), id+".stdout"), filepath.Join(os.TempDir(), id+".stderr")}
	var files [2]*os.File
	for i, p := range paths {
		f, err := os.Create(p)
		if err != nil {
			execdError(w, 500, "RUNTIME_ERROR", "%v", err)
			return
		}
		defer f.Close()
		files[i] = f
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(200)
	v := &events{w: w, f: w.(http.Flusher)}
	kind := [2]string{"stdout", "stderr"}
	var tails [2]*tail
	for i := range tails {
		tails[i] = &tail{path: paths[i], say: func(text string) { v.send(map[string]any{"type": kind[i], "text": text}) }}
	}
	begun := time.Now()
	err := cmd.Start()
	c := &execCommand{cmd: cmd, running: err == nil, started: begun}
	e.mu.Lock()
	e.commands[id] = c
	e.mu.Unlock()
	v.send(map[string]any{"type": "init", "text": id})
	if err != nil {
		v.fail(err.Error(), err.Error())
		time.Sleep(graceAtEnd)
		return
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if q.Timeout != nil && *q.Timeout > 0 {
		t := time.AfterFunc(time.Duration(*q.Timeout)*time.Millisecond, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer t.Stop()
	}
	if q.Background {
		v.send(map[string]any{"type": "execution_complete", "execution_time": time.Since(begun).Milliseconds()})
		go func() { e.ended(c, <-done) }()
		return
	}
	tick, ping := time.NewTicker(tailEvery), time.NewTicker(pingEvery)
	defer tick.Stop()
	defer ping.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
			tails[0].look(false)
			tails[1].look(false)
		case <-ping.C:
			v.send(map[string]any{"type": "ping", "text": "pong"})
		case err = <-done:
			over = true
		}
	}
	tails[0].look(true)
	tails[1].look(true)
	e.ended(c, err)
	if err == nil {
		v.send(map[string]any{"type": "execution_complete", "execution_time": time.Since(begun).Milliseconds()})
	} else {
		value := err.Error()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			value = strconv.Itoa(exit.ExitCode())
		}
		v.fail(value, err.Error())
	}
	time.Sleep(graceAtEnd)
}

func (v *events) fail(value, trace string) {
	v.send(map[string]any{"type": "error", "error": map[string]any{"ename": "CommandExecError", "evalue": value, "traceback": []string{trace}}})
}

func (e *execd) ended(c *execCommand, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.running, c.finished = false, time.Now()
	if err != nil {
		c.err, c.exitCode = err.Error(), 1
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			c.exitCode = exit.ExitCode()
		}
	}
}

func (e *execd) find(id string) *execCommand {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commands[id]
}

func (e *execd) interrupt(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" {
		execdError(w, 400, "MISSING_QUERY", "id is required")
		return
	}
	c := e.find(id)
	if c == nil || !c.running {
		execdError(w, 500, "RUNTIME_ERROR", "no such command runs")
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	time.AfterFunc(killAfter, func() {
		if c := e.find(id); c != nil && c.running {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	w.WriteHeader(200)
}

func (e *execd) status(w http.ResponseWriter, r *http.Request) {
	c := e.find(r.PathValue("id"))
	if c == nil {
		execdError(w, 404, "COMMAND_NOT_FOUND", "no such command")
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := map[string]any{"id": r.PathValue("id"), "running": c.running, "started_at": c.started}
	if !c.running {
		m["exit_code"], m["error"], m["finished_at"] = c.exitCode, c.err, c.finished
	}
	writeJSON(w, 200, m)
}

// ---- files ----

type fileMetadata struct {
	Path  string `json:"path"`
	Owner string `json:"owner"`
	Group string `json:"group"`
	Mode  int    `json:"mode"`
}

// mode is written in decimal and means octal: 644 is rw-r--r--.
func modeOf(decimal int) (fs.FileMode, error) {
	m, err := strconv.ParseUint(strconv.Itoa(decimal), 8, 32)
	return fs.FileMode(m), err
}

func chown(path, owner, group string) error {
	uid, gid := -1, -1
	if owner != "" {
		u, err := user.Lookup(owner)
		if err != nil {
			return err
		}
		uid, _ = strconv.Atoi(u.Uid)
	}
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		gid, _ = strconv.Atoi(g.Gid)
	}
	if uid < 0 && gid < 0 {
		return nil
	}
	return os.Chown(path, uid, gid)
}

func readMetadata(h *multipart.FileHeader) (m fileMetadata, err error) {
	f, err := h.Open()
	if err != nil {
		return m, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err = d.Decode(&m); err == nil && m.Path == "" {
		err = errors.New("path is required")
	}
	return m, err
}

func (e *execd) upload(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "multipart/form-data" {
		execdError(w, 400, "INVALID_FILE", "multipart/form-data is expected")
		return
	}
	if err := r.ParseMultipartForm(uploadInRAM); err != nil {
		execdError(w, 400, "INVALID_FILE", "%v", err)
		return
	}
	defer r.MultipartForm.RemoveAll()
	metas, files := r.MultipartForm.File["metadata"], r.MultipartForm.File["file"]
	if len(metas) == 0 {
		execdError(w, 400, "INVALID_FILE_METADATA", "metadata file is missing")
		return
	}
	if len(files) != len(metas) || len(r.MultipartForm.File) != 2 || len(r.MultipartForm.Value) != 0 {
		execdError(w, 400, "INVALID_FILE_CONTENT", "as many parts `file` as parts `metadata`, and no others")
		return
	}
	for i := range metas {
		m, err := readMetadata(metas[i])
		if err != nil {
			execdError(w, 400, "INVALID_FILE_METADATA", "%v", err)
			return
		}
		if err := store(m, files[i]); err != nil {
			execdError(w, 500, "RUNTIME_ERROR", "%v", err)
			return
		}
	}
	w.WriteHeader(200)
}

func store(m fileMetadata, h *multipart.FileHeader) error {
	from, err := h.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o755); err != nil {
		return err
	}
	to, err := os.OpenFile(m.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	if err := to.Close(); err != nil {
		return err
	}
	if m.Mode != 0 {
		mode, err := modeOf(m.Mode)
		if err != nil {
			return err
		}
		if err := os.Chmod(m.Path, mode); err != nil {
			return err
		}
	}
	return chown(m.Path, m.Owner, m.Group)
}

func onePath(w http.ResponseWriter, r *http.Request, known ...string) (string, bool) {
	q := r.URL.Query()
	if name := unknownQuery(q, append(known, "path")...); name != "" {
		execdError(w, 400, "INVALID_REQUEST", "unknown query parameter %s", name)
		return "", false
	}
	path := q.Get("path")
	if path == "" {
		execdError(w, 400, "MISSING_QUERY", "path is required")
		return "", false
	}
	return path, true
}

func fileFailure(w http.ResponseWriter, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		execdError(w, 404, "FILE_NOT_FOUND", "%v", err)
		return
	}
	execdError(w, 500, "RUNTIME_ERROR", "%v", err)
}

func (e *execd) download(w http.ResponseWriter, r *http.Request) {
	path, ok := onePath(w, r, "offset", "limit")
	if !ok {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		fileFailure(w, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.IsDir() {
		execdError(w, 500, "RUNTIME_ERROR", "%s is a folder", path)
		return
	}
	q := r.URL.Query()
	if q.Has("offset") || q.Has("limit") {
		e.lines(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(filepath.Base(path)))
	http.ServeContent(w, r, "", time.Time{}, f)
}

func (e *execd) lines(w http.ResponseWriter, r *http.Request, f io.Reader) {
	if r.Header.Get("Range") != "" {
		execdError(w, 400, "INVALID_REQUEST", "offset and limit exclude Range")
		return
	}
	offset, limit := 1, 1<<30
	for name, at := range map[string]*int{"offset": &offset, "limit": &limit} {
		if v := r.URL.Query().Get(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 {
				execdError(w, 400, "INVALID_REQUEST", "%s is a number from 1", name)
				return
			}
			*at = n
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s := bufio.NewReader(f)
	for n := 1; n < offset+limit; n++ {
		line, err := s.ReadString('\n')
		if n >= offset {
			_, _ = io.WriteString(w, line)
		}
		if err != nil {
			return
		}
	}
}

func describe(path string) (map[string]any, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	kind := "other"
	switch {
	case st.Mode().IsRegular():
		kind = "file"
	case st.IsDir():
		kind = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	mode, _ := strconv.Atoi(strconv.FormatUint(uint64(st.Mode().Perm()), 8))
	m := map[string]any{"path": path, "type": kind, "size": st.Size(), "modified_at": st.ModTime().UTC(), "created_at": st.ModTime().UTC(),
		"mode": mode, "owner": "root", "group": "root"}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		if u, err := user.LookupId(strconv.Itoa(int(sys.Uid))); err == nil {
			m["owner"] = u.Username
		}
	}
	return m, nil
}

func (e *execd) info(w http.ResponseWriter, r *http.Request) {
	if _, ok := onePath(w, r); !ok {
		return
	}
	all := map[string]any{}
	for _, p := range r.URL.Query()["path"] {
		m, err := describe(p)
		if err != nil {
			fileFailure(w, err)
			return
		}
		all[p] = m
	}
	writeJSON(w, 200, all)
}

func (e *execd) removeFiles(w http.ResponseWriter, r *http.Request) {
	if _, ok := onePath(w, r); !ok {
		return
	}
	for _, p := range r.URL.Query()["path"] {
		st, err := os.Lstat(p)
		if err == nil && st.IsDir() {
			execdError(w, 500, "RUNTIME_ERROR", "%s is a folder", p)
			return
		}
		if err == nil {
			err = os.Remove(p)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fileFailure(w, err)
			return
		}
	}
	w.WriteHeader(200)
}

func (e *execd) move(w http.ResponseWriter, r *http.Request) {
	var q []struct {
		Src  string `json:"src"`
		Dest string `json:"dest"`
	}
	if err := decode(r, &q); err != nil {
		execdError(w, 400, "INVALID_REQUEST_BODY", "%v", err)
		return
	}
	for _, m := range q {
		if err := os.Rename(m.Src, m.Dest); err != nil {
			fileFailure(w, err)
			return
		}
	}
	w.WriteHeader(200)
}

func (e *execd) permissions(w http.ResponseWriter, r *http.Request) {
	var q map[string]struct {
		Owner string `json:"owner"`
		Group string `json:"group"`
		Mode  int    `json:"mode"`
	}
	if err := decode(r, &q); err != nil {
		execdError(w, 400, "INVALID_REQUEST_BODY", "%v", err)
		return
	}
	for p, m := range q {
		mode, err := modeOf(m.Mode)
		if err == nil {
			err = os.Chmod(p, mode)
		}
		if err == nil {
			err = chown(p, m.Owner, m.Group)
		}
		if err != nil {
			fileFailure(w, err)
			return
		}
	}
	w.WriteHeader(200)
}

func (e *execd) search(w http.ResponseWriter, r *http.Request) {
	path, ok := onePath(w, r, "pattern")
	if !ok {
		return
	}
	pattern, found := r.URL.Query().Get("pattern"), []any{}
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if ok, _ := filepath.Match(strings.TrimPrefix(pattern, "**/"), d.Name()); ok || pattern == "" || pattern == "**" {
			if m, err := describe(p); err == nil {
				found = append(found, m)
			}
		}
		return nil
	})
	writeJSON(w, 200, found)
}

func (e *execd) list(w http.ResponseWriter, r *http.Request) {
	path, ok := onePath(w, r, "depth")
	if !ok {
		return
	}
	if st, err := os.Lstat(path); err != nil {
		fileFailure(w, err)
		return
	} else if !st.IsDir() {
		execdError(w, 400, "INVALID_REQUEST", "%s is no folder", path)
		return
	}
	all, err := os.ReadDir(path)
	if err != nil {
		fileFailure(w, err)
		return
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	found := []any{}
	for _, d := range all {
		if m, err := describe(filepath.Join(path, d.Name())); err == nil {
			found = append(found, m)
		}
	}
	writeJSON(w, 200, found)
}

func (e *execd) makeFolders(w http.ResponseWriter, r *http.Request) {
	var q map[string]struct {
		Owner string `json:"owner"`
		Group string `json:"group"`
		Mode  int    `json:"mode"`
	}
	if err := decode(r, &q); err != nil {
		execdError(w, 400, "INVALID_REQUEST_BODY", "%v", err)
		return
	}
	for p, m := range q {
		mode, err := modeOf(m.Mode)
		if err == nil {
			err = os.MkdirAll(p, 0o755)
		}
		if err == nil && mode != 0 {
			err = os.Chmod(p, mode)
		}
		if err == nil {
			err = chown(p, m.Owner, m.Group)
		}
		if err != nil {
			fileFailure(w, err)
			return
		}
	}
	w.WriteHeader(200)
}

func (e *execd) removeFolders(w http.ResponseWriter, r *http.Request) {
	if _, ok := onePath(w, r); !ok {
		return
	}
	for _, p := range r.URL.Query()["path"] {
		if err := os.RemoveAll(p); err != nil {
			fileFailure(w, err)
			return
		}
	}
	w.WriteHeader(200)
}
