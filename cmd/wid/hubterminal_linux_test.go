package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// terminal returns both ends of a terminal.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	var number, locked int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// A person at a terminal sees the claim and decides.
func TestHubAcceptAsksAtATerminal(t *testing.T) {
	w := newAcceptEnvironment(t)
	for name, c := range map[string]struct {
		types    string
		clusters int
		args     []string
		asks     int
		accepts  int
	}{
		"yes":                      {"yes\n", 1, nil, 1, 1},
		"no":                       {"no\n", 1, nil, 1, 0},
		"nothing":                  {"\n", 1, nil, 1, 0},
		"a word that begins alike": {"yesterday\n", 1, nil, 1, 0},
		"end of input":             {"\x04", 1, nil, 1, 0},
		"yes and yes":              {"yes\nyes\n", 2, nil, 2, 2},
		"yes and no":               {"yes\nno\n", 2, nil, 2, 1},
		"the claim is given":       {"", 1, []string{"--claim=" + eksManaged}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var clusters []string
			for range c.clusters {
				clusters = append(clusters, w.cluster(t, eksManaged))
			}
			person, program := terminal(t)
			if _, err := person.WriteString(c.types); err != nil {
				t.Fatal(err)
			}
			out, err := widWith(t, program,
				append([]string{"hub", "accept", "--clusters=" + strings.Join(clusters, ",")}, c.args...)...)
			if (err == nil) != (c.accepts == c.clusters) ||
				err != nil && (cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), "--claim")) {
				t.Errorf("it says %s, %v", out, err)
			}
			if got := strings.Count(out, `claim "`+eksManaged+`"? [yes/no]`); got != c.asks {
				t.Errorf("it asks %d times: %s", got, out)
			}
			accepted := 0
			for _, cluster := range clusters {
				if w.Cluster(cluster).Spec.HubAcceptsClient {
					accepted++
				}
			}
			if accepted != c.accepts {
				t.Errorf("%d clusters are accepted", accepted)
			}
		})
	}
}
