package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// Terminals of Daytona's toolbox: one WebSocket makes it and stays connected. What comes is input, of any kind; output goes in binary
// messages. The end of the connection ends no shell.

const (
	ptyPiece    = 1024 // as the daemon reads
	ptyInputMax = 1 << 20
	wsGUID      = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	exitControl = "X-Daytona-Pty-Exit-Control"
)

type terminal struct {
	master *os.File
	cmd    *exec.Cmd
}

var (
	terminalsMu sync.Mutex
	terminals   = map[string]*terminal{}
)

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// openTerminal: both ends.
func openTerminal(cols, rows uint16) (*os.File, *os.File, error) {
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	var locked, n int32
	if err = ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&locked)); err == nil {
		err = ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&n))
	}
	size := [4]uint16{rows, cols, 0, 0}
	if err == nil {
		err = ioctl(master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

func startTerminal(cols, rows uint16) (*terminal, error) {
	master, slave, err := openTerminal(cols, rows)
	if err != nil {
		return nil, err
	}
	defer slave.Close()
	cmd := exec.Command(loginShell(), "-i")
	cmd.Dir = daytonaHome
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		_ = master.Close()
		return nil, err
	}
	return &terminal{master, cmd}, nil
}

// ---- WebSocket ----

type webSocket struct {
	io.Writer
	r  *bufio.Reader
	mu sync.Mutex
}

func (s *webSocket) send(opcode byte, p []byte) error {
	head := []byte{0x80 | opcode, byte(len(p))}
	if len(p) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x80 | opcode, 126}, uint16(len(p)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.Write(append(head, p...))
	return err
}

// receive gives one frame; a client's are masked, and it is told so.
func (s *webSocket) receive() (byte, []byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 0x7f)
	if digits := map[uint64]int{126: 2, 127: 8}[n]; digits > 0 {
		var b [8]byte
		if _, err := io.ReadFull(s.r, b[8-digits:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	}
	if head[1]&0x80 == 0 || head[0]&0x70 != 0 || n > ptyInputMax {
		return 0, nil, errors.New("not a frame of a client")
	}
	var mask [4]byte
	if _, err := io.ReadFull(s.r, mask[:]); err != nil {
		return 0, nil, err
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(s.r, p); err != nil {
		return 0, nil, err
	}
	for i := range p {
		p[i] ^= mask[i&3]
	}
	return head[0] & 0x0f, p, nil
}

func upgrade(w http.ResponseWriter, r *http.Request) (*webSocket, io.Closer, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Sec-WebSocket-Version") != "13" || len(key) != 24 {
		return nil, nil, errors.New("a WebSocket is needed here")
	}
	conn, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return nil, nil, err
	}
	sum := sha1.Sum([]byte(key + wsGUID))
	more := ""
	if strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), exitControl) {
		more = "Sec-WebSocket-Protocol: " + exitControl + "\r\n"
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%sSec-WebSocket-Accept: %s\r\n\r\n", more,
		base64.StdEncoding.EncodeToString(sum[:]))
	return &webSocket{Writer: conn, r: buf.Reader}, conn, err
}

// ---- the requests ----

func toolboxPty(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := q.Get("id")
	cols, e1 := strconv.ParseUint(q.Get("cols"), 10, 16)
	rows, e2 := strconv.ParseUint(q.Get("rows"), 10, 16)
	if name := unknownQuery(q, "id", "cols", "rows", "cwd"); name != "" || id == "" || e1 != nil || e2 != nil {
		writeJSON(w, 400, map[string]string{"error": "id, cols and rows are needed, and nothing else but cwd"})
		return
	}
	terminalsMu.Lock()
	_, taken := terminals[id]
	var t *terminal
	var err error
	if !taken {
		if t, err = startTerminal(uint16(cols), uint16(rows)); err == nil {
			terminals[id] = t
		}
	}
	terminalsMu.Unlock()
	if taken || err != nil {
		writeJSON(w, 409, map[string]string{"error": fmt.Sprintf("a terminal %q: taken, or %v", id, err)})
		return
	}
	s, conn, err := upgrade(w, r)
	if err != nil {
		endTerminal(id)
		writeJSON(w, 400, map[string]string{"error": err.Error()})
		return
	}
	_ = s.send(1, []byte(`{"type":"control","status":"connected"}`))
	go t.input(s)
	t.output(s)
	_ = t.cmd.Wait()
	_ = t.master.Close()
	terminalsMu.Lock()
	delete(terminals, id)
	terminalsMu.Unlock()
	reason, _ := json.Marshal(map[string]any{"exitCode": t.cmd.ProcessState.ExitCode()})
	_ = s.send(8, append([]byte{0x03, 0xe8}, reason...))
	_ = conn.Close()
}

// output goes on when nobody is connected any more, until the shell has ended.
func (t *terminal) output(s *webSocket) {
	piece := make([]byte, ptyPiece)
	for {
		n, err := t.master.Read(piece)
		if n > 0 {
			_ = s.send(2, piece[:n])
		}
		if err != nil {
			return
		}
	}
}

func (t *terminal) input(s *webSocket) {
	for {
		opcode, p, err := s.receive()
		if err != nil || opcode == 8 {
			return
		}
		if opcode == 9 {
			_ = s.send(10, p)
		} else if opcode < 8 {
			_, _ = t.master.Write(p)
		}
	}
}

func endTerminal(id string) bool {
	terminalsMu.Lock()
	t := terminals[id]
	terminalsMu.Unlock()
	if t != nil {
		_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	}
	return t != nil
}

func toolboxPtyEnd(w http.ResponseWriter, r *http.Request) {
	if !endTerminal(r.PathValue("id")) {
		writeJSON(w, 404, map[string]string{"error": "no such terminal"})
		return
	}
	writeJSON(w, 200, map[string]string{"message": "PTY session deleted"})
}
