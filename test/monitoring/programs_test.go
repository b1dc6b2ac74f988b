package monitoring_test

import (
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
	"github.com/workloadid/workloadid/podidentity/server"
	"github.com/workloadid/workloadid/podidentity/webhook"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/relay"
	"github.com/workloadid/workloadid/registration/token"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// program is one that has alerts and a dashboard, in the folder of its name.
type program struct {
	name, title string
	// register registers the metrics of the program, in the way the program
	// does.
	register func(client.Client, prometheus.Registerer) error
	// elsewhere is the prefix of metrics that another program's dashboard
	// shows.
	elsewhere string
}

// programs are all of them, in the order of metrics.md.
func programs() []program {
	return []program{
		{name: "cache", title: "Token cache, in your controller", register: registerCache},
		{name: "hub", title: "Hub and relay", register: registerHub},
		{name: "agent", title: "Agent", register: registerAgent},
		{name: "podidentity", title: "Pod identity", register: registerPodIdentity, elsewhere: "podidentity_cache"},
	}
}

func registerCache(_ client.Client, r prometheus.Registerer) error { return attach(prefix, r) }

func attach(prefix string, r prometheus.Registerer) error {
	m, err := metrics.New(prefix, r)
	if err == nil {
		m.Attach(func() cache.Stats { return cache.Stats{} })
	}
	return err
}

const hubARN, managedARN = "arn:aws:eks:eu-central-1:123456789012:cluster/hub",
	"arn:aws:eks:eu-west-1:222222222222:cluster/shop"

func registerHub(c client.Client, r prometheus.Registerer) error {
	aws,
		err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: hubARN, IAM: struct{ awsirsa.IAM }{},
		EKS:     struct{ awsirsa.EKS }{},
		Binding: awsirsa.AccessEntries, Registerer: r})
	if err != nil {
		return err
	}
	if _, err = hub.New(hub.Options{Client: c, Drivers: []registration.HubDriver{aws}, Registerer: r}); err != nil {
		return err
	}
	_,
		err = relay.New(relay.Options{Hub: &rest.Config{Host: "https://hub.example"}, ClientCAs: x509.NewCertPool(),
		Registerer: r})
	return err
}

func registerAgent(c client.Client, r prometheus.Registerer) error {
	a, err := agent.New(agent.Options{Cluster: "cluster1", Driver: csr.New(csr.Options{}), Local: c, Registerer: r})
	if err != nil {
		return err
	}
	tokens, err := token.New(token.Options{Registerer: r})
	if err != nil {
		return err
	}
	_, err = agent.NewAddOns(agent.AddOnOptions{Agent: a, KubeClient: tokens})
	return err
}

func registerPodIdentity(c client.Client, r prometheus.Registerer) error {
	tokens, err := cache.NewTokenCache(1)
	if err != nil {
		return err
	}
	defer tokens.Close()
	if _,
		err = server.New(server.Options{Client: c, Audience: "a", Cluster: "c", Cache: tokens, Registerer: r}); err != nil {
		return err
	}
	if _, err = webhook.New(webhook.Options{Bindings: c, Live: c, Image: "i", Server: "https://s", CA: func() []byte {
		return nil
	}, Audience: "a", Registerer: r}); err != nil {
		return err
	}
	return attach("podidentity_", r)
}

// metric is one of a program, as its collector describes it.
type metric struct {
	name, kind, help string
	labels           []string
}

// collected takes the descriptions of collectors.
type collected struct {
	prometheus.Registerer
	metrics []metric
}

var description = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: "([^"]+)", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func (c *collected) Register(from prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 100)
	from.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			return fmt.Errorf("cannot read %s", d)
		}
		m := metric{name: parts[1], help: parts[2], kind: kindOf(from)}
		for label := range strings.FieldsFuncSeq(parts[3]+","+parts[4], func(r rune) bool { return r == ',' }) {
			name, _, _ := strings.Cut(label, "=")
			m.labels = append(m.labels, name)
		}
		c.metrics = append(c.metrics, m)
	}
	return nil
}

func (c *collected) Unregister(prometheus.Collector) bool { return false }

func kindOf(from prometheus.Collector) string {
	switch from.(type) {
	case *prometheus.HistogramVec:
		return "histogram"
	case prometheus.Gauge: // before Counter, whose methods it has
		return "gauge"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	}
	return "gauge"
}

func (p program) metrics(t *testing.T) []metric {
	t.Helper()
	s := scheme.Scheme
	if err := ocm.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := &collected{}
	if err := p.register(fake.NewClientBuilder().WithScheme(s).Build(), c); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(c.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	// the version, of each component
	return slices.CompactFunc(c.metrics, func(a, b metric) bool { return a.name == b.name })
}

// known are the series of the program and their labels, as a scrape shows them.
func (p program) known(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, m := range p.metrics(t) {
		if m.kind != "histogram" {
			all[m.name] = m.labels
			continue
		}
		all[m.name+"_sum"], all[m.name+"_count"], all[m.name+"_bucket"] = m.labels, m.labels,
			append(slices.Clone(m.labels), "le")
	}
	return all
}

// generated compares a file of docs/monitoring with what it should hold, or
// writes it.
func generated(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "monitoring", name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // documentation is public
			t.Fatal(err)
		}
		return
	}
	if string(document(t, name)) != want {
		t.Errorf("docs/monitoring/%s differs from the code: run make generate", name)
	}
}

// All metrics are listed, and nothing else.
func TestGeneratedTableOfMetrics(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"# Metrics\n\nAll metrics of this library, program by program. `make generate` writes this page from the code. controller-runtime adds\n" +
			"its own to `/metrics` of every program, among them `controller_runtime_reconcile_errors_total` and `leader_election_master_status`.\n")
	for _, p := range programs() {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | is |\n|---|---|---|---|\n", p.title)
		for _, m := range p.metrics(t) {
			labels := "–"
			if len(m.labels) > 0 {
				labels = "`" + strings.Join(m.labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
		}
	}
	generated(t, "metrics.md", b.String())
}
