package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Daytona's toolbox in a sandbox, from the published document: a command's two streams are one, its text goes to the shell's
// standard input, and nothing ends it but its time.

const (
	daytonaHome   = "/home/daytona"
	bulkBoundary  = "DAYTONA-FILE-BOUNDARY"
	executeLimitS = 3600
)

func toolboxError(w http.ResponseWriter, r *http.Request, status int, err error) {
	writeJSON(w, status, map[string]any{"statusCode": status, "message": err.Error(), "code": strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_")),
		"timestamp": time.Now().UTC(), "path": r.URL.Path, "method": r.Method})
}

func fileStatus(err error) int {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 404
	case errors.Is(err, fs.ErrPermission):
		return 403
	}
	return 400
}

func daytonaDaemonMain(args []string) error {
	if len(args) != 1 {
		return errors.New("the path of a socket is needed")
	}
	if err := os.MkdirAll(daytonaHome, 0o755); err != nil {
		return err
	}
	if err := os.Chdir(daytonaHome); err != nil {
		return err
	}
	_ = os.Remove(args[0])
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, map[string]string{"version": "v0.0.0-standin"})
	})
	dir := func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, map[string]string{"dir": daytonaHome}) }
	mux.HandleFunc("GET /user-home-dir", dir)
	mux.HandleFunc("GET /work-dir", dir)
	mux.HandleFunc("POST /process/execute", toolboxExecute)
	mux.HandleFunc("GET /process/pty/create-connect", toolboxPty)
	mux.HandleFunc("DELETE /process/pty/{id}", toolboxPtyEnd)
	mux.HandleFunc("POST /files/bulk-upload", toolboxUpload)
	mux.HandleFunc("GET /files/download", toolboxDownload)
	mux.HandleFunc("POST /files/bulk-download", toolboxBulkDownload)
	mux.HandleFunc("GET /files/info", toolboxInfo)
	mux.HandleFunc("GET /files", toolboxList)
	mux.HandleFunc("DELETE /files", toolboxDelete)
	mux.HandleFunc("POST /files/folder", toolboxFolder)
	return http.Serve(l, mux)
}

func loginShell() string {
	text, _ := os.ReadFile("/etc/shells")
	for _, name := range []string{"zsh", "bash"} {
		if path, err := exec.LookPath(name); err == nil && strings.Contains(string(text), path) {
			return path
		}
	}
	return "sh"
}

func toolboxExecute(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Command string            `json:"command"`
		Cwd     string            `json:"cwd"`
		Envs    map[string]string `json:"envs"`
		Timeout *int              `json:"timeout"`
	}
	if err := decode(r, &q); err != nil {
		toolboxError(w, r, 400, err)
		return
	}
	if strings.TrimSpace(q.Command) == "" {
		toolboxError(w, r, 400, errors.New("empty command"))
		return
	}
	seconds := 10 // as documented; 0: none
	if q.Timeout != nil {
		seconds = *q.Timeout
	}
	if seconds == 0 || seconds > executeLimitS {
		seconds = executeLimitS
	}
	cmd := exec.Command(loginShell())
	cmd.Stdin = strings.NewReader(q.Command + "\n")
	cmd.Dir = q.Cwd
	cmd.Env = os.Environ()
	for k, v := range q.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		toolboxError(w, r, 400, err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(time.Duration(seconds) * time.Second):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		toolboxError(w, r, 408, errors.New("command execution timeout"))
		return
	}
	code := 0
	if err != nil {
		code = -1
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
	}
	writeJSON(w, 200, map[string]any{"exitCode": code, "result": strings.ToValidUTF8(out.String(), "\uFFFD")})
}

// toolboxUpload takes pairs of files[N].path, then files[N].file; content streams to the disk.
func toolboxUpload(w http.ResponseWriter, r *http.Request) {
	m, err := r.MultipartReader()
	if err != nil {
		toolboxError(w, r, 400, err)
		return
	}
	paths, stored, bad := map[string]string{}, []any{}, []string{}
	for {
		part, err := m.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			bad = append(bad, err.Error())
			break
		}
		name := part.FormName()
		index, kind, ok := strings.Cut(strings.TrimPrefix(name, "files["), "].")
		if _, e := strconv.Atoi(index); e != nil || !ok || !strings.HasPrefix(name, "files[") || (kind != "path" && kind != "file") {
			bad = append(bad, fmt.Sprintf("unexpected part %q", name))
			continue
		}
		if kind == "path" {
			text, _ := io.ReadAll(io.LimitReader(part, 4096))
			paths[index] = string(text)
			continue
		}
		path := paths[index]
		if path == "" {
			bad = append(bad, fmt.Sprintf("file[%s]: missing .path metadata", index))
			continue
		}
		n, err := storePart(path, part)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		stored = append(stored, map[string]any{"path": path, "bytes": n})
	}
	if len(bad) > 0 {
		writeJSON(w, 400, map[string]any{"errors": bad, "files": stored})
		return
	}
	writeJSON(w, 200, map[string]any{"files": stored})
}

func storePart(path string, from *multipart.Part) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, from)
	if e := f.Close(); err == nil {
		err = e
	}
	return n, err
}

func toolboxPath(w http.ResponseWriter, r *http.Request, known ...string) (string, bool) {
	q := r.URL.Query()
	path := q.Get("path")
	if name := unknownQuery(q, append(known, "path")...); name != "" || path == "" {
		toolboxError(w, r, 400, fmt.Errorf("path is required, %q is not known", name))
		return "", false
	}
	return path, true
}

func toolboxDownload(w http.ResponseWriter, r *http.Request) {
	path, ok := toolboxPath(w, r)
	if !ok {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		toolboxError(w, r, fileStatus(err), err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.IsDir() {
		toolboxError(w, r, 400, errors.New("path must be a file"))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(filepath.Base(path)))
	http.ServeContent(w, r, "", time.Time{}, f)
}

func toolboxBulkDownload(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Paths []string `json:"paths"`
	}
	if err := decode(r, &q); err != nil || len(q.Paths) == 0 {
		toolboxError(w, r, 400, fmt.Errorf("request body must be {\"paths\": [..]} and non-empty: %v", err))
		return
	}
	w.Header().Set("Content-Type", "multipart/form-data; boundary="+bulkBoundary)
	m := multipart.NewWriter(w)
	_ = m.SetBoundary(bulkBoundary)
	for _, path := range q.Paths {
		f, err := os.Open(path)
		h := textproto.MIMEHeader{}
		if err != nil {
			h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "error", "filename": path}))
			h.Set("Content-Type", "application/json")
			p, _ := m.CreatePart(h)
			_ = json.NewEncoder(p).Encode(map[string]any{"statusCode": fileStatus(err), "message": err.Error(), "code": "FILE_NOT_FOUND"})
			continue
		}
		st, _ := f.Stat()
		h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": path}))
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.FormatInt(st.Size(), 10))
		p, _ := m.CreatePart(h)
		_, _ = io.Copy(p, f)
		_ = f.Close()
	}
	_ = m.Close()
}

func toolboxFile(path string) (map[string]any, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return map[string]any{"name": st.Name(), "path": path, "size": st.Size(), "isDir": st.IsDir(), "mode": st.Mode().String(),
		"permissions": fmt.Sprintf("%04o", st.Mode().Perm()), "owner": "root", "group": "root", "modTime": st.ModTime().String(),
		"modifiedAt": st.ModTime().UTC().Format(time.RFC3339Nano)}, nil
}

func toolboxInfo(w http.ResponseWriter, r *http.Request) {
	path, ok := toolboxPath(w, r)
	if !ok {
		return
	}
	m, err := toolboxFile(path)
	if err != nil {
		toolboxError(w, r, fileStatus(err), err)
		return
	}
	writeJSON(w, 200, m)
}

func toolboxList(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	if path == "" {
		path = daytonaHome
	}
	all, err := os.ReadDir(path)
	if err != nil {
		toolboxError(w, r, fileStatus(err), err)
		return
	}
	found := []any{}
	for _, d := range all {
		if m, err := toolboxFile(filepath.Join(path, d.Name())); err == nil {
			found = append(found, m)
		}
	}
	writeJSON(w, 200, found)
}

func toolboxDelete(w http.ResponseWriter, r *http.Request) {
	path, ok := toolboxPath(w, r, "recursive")
	if !ok {
		return
	}
	st, err := os.Lstat(path)
	if err == nil && st.IsDir() && r.URL.Query().Get("recursive") != "true" {
		err = errors.New("cannot delete directory without recursive flag")
	} else if err == nil {
		err = os.RemoveAll(path)
	}
	if err != nil {
		toolboxError(w, r, fileStatus(err), err)
		return
	}
	w.WriteHeader(204)
}

func toolboxFolder(w http.ResponseWriter, r *http.Request) {
	path, ok := toolboxPath(w, r, "mode")
	mode, err := strconv.ParseUint(r.URL.Query().Get("mode"), 8, 32)
	if !ok {
		return
	}
	if err == nil {
		err = os.MkdirAll(path, fs.FileMode(mode))
	}
	if err != nil {
		toolboxError(w, r, 400, err)
		return
	}
	w.WriteHeader(201)
}
