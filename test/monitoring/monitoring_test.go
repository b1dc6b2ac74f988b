// Package monitoring_test checks the alert rules and the dashboard of
// docs/monitoring with Prometheus' own parser and engine.
package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/workloadid/workloadid/cache"
)

const prefix = "gotk_token_"

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// check makes sure that an expression is valid and asks for nothing that does
// not exist. It returns the metrics in it.
func check(t *testing.T, where, text string, metrics map[string][]string) []string {
	t.Helper()
	expr, err := newParser().ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	var used, allowed, asked []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			own, ok := metrics[n.Name]
			if !ok {
				t.Errorf("%s: the program has no %q", where, n.Name)
			}
			used, allowed = append(used, n.Name), append(allowed, own...)
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && m.Name != "job" && !slices.Contains(own, m.Name) {
					t.Errorf("%s: %q has no label %q", where, n.Name, m.Name)
				}
				checkValue(t, where, n.Name, m)
			}
		case *parser.AggregateExpr:
			asked = append(asked, n.Grouping...)
		}
		return nil
	})
	for _, label := range asked {
		if label != "job" && !slices.Contains(allowed, label) {
			t.Errorf("%s: no metric in it has the label %q", where, label)
		}
	}
	return used
}

// checkValue knows the values of the labels that have a few only.
func checkValue(t *testing.T, where, series string, m *labels.Matcher) {
	t.Helper()
	values := map[string][]string{
		"status":     {"success", "failure"},
		"event_type": {"cache_hit", "cache_miss"},
		"state":      {"pending", "accepted", "denied", "refused", "deleting"},
		"operation":  {"approve", "grant", "revoke"},
		"component":  {"hub", "relay", "agent", "server", "webhook"},
	}[m.Name]
	if m.Name == "result" {
		values = resultsOf(series)
	}
	if values == nil {
		return
	}
	for value := range strings.SplitSeq(m.Value, "|") {
		if !slices.Contains(values, value) {
			t.Errorf("%s: the label %q is never %q", where, m.Name, value)
		}
	}
}

// resultsOf returns the values of the label result, which each program has its
// own of.
func resultsOf(series string) []string {
	for start, values := range map[string][]string{
		prefix: cache.Results(), "registration_hub": {"success", "failure"},
		"registration_agent_reconciles":   {"joined", "waiting", "error"},
		"registration_agent_addon":        {"issued", "refreshed", "failed"},
		"podidentity_server_token_review": {"success", "failure"},
		"podidentity_server_request": {"Issued", "NotAttested", "NotBound", "Conflict", "RoleNotAllowed", "RoleNotAssumable",
			"Unavailable", "Throttled", "Malformed"},
		"podidentity_webhook": {"injected", "unchanged", "unbound", "skipped", "denied", "busy", "error"},
	} {
		if strings.HasPrefix(series, start) {
			return values
		}
	}
	return nil
}

func document(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func rules(t *testing.T, program string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(document(t, filepath.Join(program, "alerts.yaml")), false, model.UTF8Validation,
		newParser(), nil)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() || len(groups.Groups) != 1 {
		t.Fatal("the rules cannot be used")
	}
	return groups.Groups[0].Rules
}

func TestAlertRules(t *testing.T) {
	readme := string(document(t, "README.md"))
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			metrics := p.known(t)
			for _, rule := range rules(t, p.name) {
				check(t, rule.Alert, rule.Expr, metrics)
				if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) ||
					rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
					t.Errorf("%s lacks a severity, a summary or a description", rule.Alert)
				}
				if !strings.Contains(readme, "| "+rule.Alert+" |") {
					t.Errorf("README.md does not say what to do about %s", rule.Alert)
				}
			}
		})
	}
}

// variables are what Grafana puts in.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", ".*")

type panel struct {
	Title, Type string
	Targets     []struct {
		Expr    string
		Instant bool
	}
}

func panels(t *testing.T, program string) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(document(t, filepath.Join(program, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

func TestDashboard(t *testing.T) {
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) { checkDashboard(t, p) })
	}
}

// checkDashboard makes sure that a dashboard shows all metrics of its program,
// and none that does not exist.
func checkDashboard(t *testing.T, p program) {
	metrics := p.known(t)
	var shown []string
	for _, panel := range panels(t, p.name) {
		if len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			if target.Instant != (panel.Type != "timeseries") {
				t.Errorf("the panel %q shows the present only if its query is for an instant, and a graph only if it is not",
					panel.Title)
			}
			shown = append(shown, check(t, panel.Title, variables.Replace(target.Expr), metrics)...)
		}
	}
	for name := range metrics {
		if !slices.Contains(shown, name) && (p.elsewhere == "" || !strings.HasPrefix(name, p.elsewhere)) {
			t.Errorf("no panel shows %q", name)
		}
	}
	for _, name := range regexp.MustCompile(`label_values\(([a-z_]+)`).FindAllStringSubmatch(string(document(t, filepath.Join(p.name, "dashboard.json"))), -1) {
		if _, ok := metrics[name[1]]; !ok {
			t.Errorf("the program has no %q", name[1])
		}
	}
}
