package fleet

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// program is a program of cmd that runs with the memory limit of its
// Deployment.
type program struct {
	t       *testing.T
	cmd     *exec.Cmd
	metrics string
	began   time.Time
}

// start runs a program with the flags and the memory settings of its manifests.
func (f *fleet) start(name, kubeconfig, printed string, args []string) *program {
	f.t.Helper()
	dir := f.t.TempDir()
	bin := filepath.Join(dir, name)
	build := exec.CommandContext(f.t.Context(), "go", "-C", "../../..", "build", "-o", bin,
		"./cmd/"+name) //nolint:gosec // our own
	if out, err := build.CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	port, err := controlplane.FreePort()
	if err != nil {
		f.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		f.t.Fatal(err)
	}
	p := &program{t: f.t, metrics: "http://127.0.0.1:" + port + "/metrics", began: time.Now()}
	p.cmd = exec.CommandContext(f.t.Context(), bin,
		append(args, "--metrics-bind-address=127.0.0.1:"+port, "--health-probe-bind-address=0")...) //nolint:gosec // our own
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "GOGC=50",
		"GOMEMLIMIT="+regexp.MustCompile(`GOMEMLIMIT, value: (\w+)`).FindStringSubmatch(printed)[1])
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		p.stop()
		if content, err := os.ReadFile(log.Name()); err == nil && f.t.Failed() {
			f.t.Logf("%s: %.5000s", name, content)
		}
	})
	return p
}

// stop lets the program give up its Lease.
func (p *program) stop() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = p.cmd.Wait()
	}
}

// scrape returns the metrics, none before the program serves them.
func (p *program) scrape() string {
	response, err := http.Get(p.metrics) //nolint:noctx // on loopback
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body) // the next one is whole
	return string(content)
}

// read returns the sum of the samples whose line begins so.
func (p *program) read(sample string) (sum float64) {
	for line := range strings.Lines(p.scrape()) {
		if strings.HasPrefix(line, sample) {
			sum += valueOf(line)
		}
	}
	return sum
}

func valueOf(line string) float64 {
	value, _ := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
	return value
}

// until waits for a metric, and returns the time since the start.
func (p *program) until(sample string, want float64) time.Duration {
	p.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Minute); p.read(sample) < want; <-tick.C {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is %v, not %v", sample, p.read(sample), want)
		}
	}
	return time.Since(p.began)
}

// writes counts the program's requests that change objects. Leader election
// makes one every other second.
func (p *program) writes() (n float64) {
	for line := range strings.Lines(p.scrape()) {
		if strings.HasPrefix(line, "rest_client_requests_total{") && !strings.Contains(line, `method="GET"`) {
			n += valueOf(line)
		}
	}
	return n
}

// log writes the memory, and returns the peak in bytes.
func (p *program) log(name string) int64 {
	p.t.Helper()
	peak, now := p.status("VmHWM"), p.status("VmRSS")
	p.t.Logf("%s: resident %d MiB, at most %d MiB, heap %d MiB, %d goroutines, CPU %.1f s", name, now>>20, peak>>20,
		int64(p.read("go_memstats_heap_alloc_bytes "))>>20,
		int(p.read("go_goroutines ")), p.read("process_cpu_seconds_total "))
	return peak
}

// status reads a size from /proc.
func (p *program) status(field string) int64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), field+":")
	kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kib << 10
}

// measureAgent runs the agent program against the hub, on which its cluster
// waits.
func (f *fleet) measureAgent() {
	f.t.Helper()
	agentProgram := f.startAgent("measured", "abcdef.0123456789abcdef")
	agentProgram.until(`controller_runtime_reconcile_total{controller="registration-agent",result="`, 1)
	agentProgram.log("agent, waiting")
	agentProgram.stop()
}

// startAgent installs an agent with a bootstrap token, and runs its program.
func (f *fleet) startAgent(cluster, token string) *program {
	f.t.Helper()
	o := manifests.AgentOptions{Image: "x", Cluster: cluster, AuthType: registration.AuthTypeCSR,
		AddOnAuthType: registration.AuthTypeToken,
		Hub:           &bootstrap.ClusterInfo{Server: f.Config().Host, CAData: f.Config().CAData},
		Token:         token}
	printed, err := manifests.Agent(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(printed)
	return f.start("wid-agent", f.AccountKubeconfig(f.t, agent.DefaultNamespace, ocm.AgentName), printed, o.Args())
}
