package hubcmd

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration"
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
	for name, row := range map[string]struct {
		types         string
		clusters      int
		flags         []string
		asks, accepts int
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
			var objects []client.Object
			for i := range row.clusters {
				claim := registration.Claim{AuthType: registration.AuthTypeAWS, Value: eksManaged}
				objects = append(objects, waiting(fmt.Sprint("shop", i), claim)...)
			}
			hub := newHub(t, objects...)
			person, program := terminal(t)
			if _, err := person.WriteString(row.types); err != nil {
				t.Fatal(err)
			}
			d, said := deciderOf(t, hub, row.flags...)
			d.cmd.SetIn(program)
			d.answers = bufio.NewReader(program)
			var err error
			accepted := 0
			for i := 0; i < row.clusters && err == nil; i++ {
				if err = d.accept(t.Context(), get(t, hub, fmt.Sprint("shop", i))); err == nil {
					accepted++
				}
			}
			if accepted != row.accepts {
				t.Errorf("%d clusters are accepted, want %d: %v", accepted, row.accepts, err)
			}
			if accepted < row.clusters {
				expectFailure(t, err, cli.ExitDenied, "--claim")
				if get(t, hub, fmt.Sprint("shop", accepted)).Spec.HubAcceptsClient {
					t.Error("the refused cluster is accepted")
				}
			}
			if got := strings.Count(said.String(), `claim "`+eksManaged+`"? [yes/no]`); got != row.asks {
				t.Errorf("it asks %d times, want %d: %s", got, row.asks, said)
			}
		})
	}
}
