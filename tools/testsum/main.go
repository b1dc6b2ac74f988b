// Command testsum reads what "go test -json" prints and sums it up: a line for
// each package, the output of what failed, and last how many tests passed,
// failed and were skipped. It fails if any test failed or was skipped, if a
// package did not build, and if there was no test at all.
//
//	go test -json ./... | go -C tools run ./testsum
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is a line of test2json, as "go doc test2json" describes it.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type summary struct {
	out                     io.Writer
	passed, failed, skipped int
	broken                  bool
	output                  map[string]*strings.Builder // of tests and packages that have not ended
}

func main() {
	s := &summary{out: os.Stdout, output: map[string]*strings.Builder{}}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.broken || s.failed > 0 || s.skipped > 0 || s.passed == 0 {
		os.Exit(1)
	}
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			// Not of the test runner: a message of the go command.
			_, _ = fmt.Fprintln(s.out, lines.Text())
			continue
		}
		s.add(e)
	}
	return lines.Err()
}

func (s *summary) add(e event) {
	key := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if s.output[key] == nil {
			s.output[key] = &strings.Builder{}
		}
		s.output[key].WriteString(e.Output)
		return
	case "build-fail":
		s.broken = true
		s.print(key)
	case "pass", "fail", "skip":
		s.end(e, key)
	default:
		return
	}
	delete(s.output, key)
}

func (s *summary) end(e event, key string) {
	if e.Test == "" {
		if e.Action == "fail" {
			s.broken = true
			s.print(key)
		}
		if e.Action != "skip" { // packages without tests
			_, _ = fmt.Fprintf(s.out, "%-4s %6.1fs  %s\n", e.Action, e.Elapsed, e.Package)
		}
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		s.print(key)
	case "skip":
		s.skipped++
		s.print(key)
	}
}

func (s *summary) print(key string) {
	if text := s.output[key]; text != nil {
		_, _ = io.WriteString(s.out, text.String())
	}
}
