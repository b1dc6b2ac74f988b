package monitoring_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// shows is a panel: a number now, or a graph.
type shows struct {
	title, unit, about string
	now                bool
	queries            []query
}

type query struct{ expr, legend string }

// dashboards are those of programs, except for the token cache's. JOB stands for the selection of jobs.
func dashboards() map[string][]shows {
	return map[string][]shows{"hub": hubDashboard(), "agent": agentDashboard(), "podidentity": podIdentityDashboard()}
}

// seconds are the panels of a histogram.
func seconds(title, name, by string) shows {
	legend := "{{" + strings.ReplaceAll(by, ", ", "}} {{") + "}}"
	quantile := func(q string) query {
		return query{"histogram_quantile(" + q + ", sum by (" + by + ", le) (rate(" + name + "_bucket{JOB}[$__rate_interval])))", q + " " + legend}
	}
	return shows{title: title, unit: "s", queries: []query{quantile("0.5"), quantile("0.99"),
		{"sum by (" + by + ") (rate(" + name + "_sum{JOB}[$__rate_interval])) / sum by (" + by + ") (rate(" + name + "_count{JOB}[$__rate_interval]))", "mean " + legend}}}
}

func versions(system string) shows {
	return shows{title: "Versions", unit: "short", now: true, about: "Processes by version.",
		queries: []query{{"count by (component, version) (" + system + "_build_info{JOB})", "{{component}} {{version}}"}}}
}

func hubDashboard() []shows {
	clusters := func(title, state string) shows {
		return shows{title: title, unit: "short", now: true, queries: []query{{`sum(registration_hub_clusters{JOB,state="` + state + `"})`, "clusters"}}}
	}
	const calls = "registration_hub_driver_duration_seconds"
	return []shows{
		clusters("Accepted", "accepted"), clusters("Waiting for acceptance", "pending"), clusters("Refused", "refused"), versions("registration"),
		{title: "Clusters", unit: "short", queries: []query{{"sum by (state) (registration_hub_clusters{JOB})", "{{state}}"}}},
		{title: "Joined clusters", unit: "short", about: "By whether they are available.", queries: []query{{"sum by (available) (registration_hub_joined_clusters{JOB})", "{{available}}"}}},
		{title: "Calls of drivers", unit: "ops", queries: []query{{"sum by (operation, driver, result) (rate(" + calls + "_count{JOB}[$__rate_interval]))", "{{operation}} {{driver}} {{result}}"}}},
		seconds("Time that calls of drivers take", calls, "operation, driver"),
		{title: "Roles in AWS IAM", unit: "short", about: "With aws-irsa, and the limit of this hub.",
			queries: []query{{"max(registration_awsirsa_roles{JOB})", "roles"}, {"max(registration_awsirsa_max_roles{JOB})", "limit"}}},
	}
}

func agentDashboard() []shows {
	return []shows{
		{title: "Joined", unit: "short", now: true, about: "1 for each cluster whose agent reaches the hub with its own credential.",
			queries: []query{{"max by (cluster) (registration_agent_joined{JOB})", "{{cluster}}"}}},
		{title: "First token of an add-on to expire", unit: "s", now: true,
			queries: []query{{"min(registration_addon_token_expiry_timestamp_seconds{JOB}) - time()", "left"}}},
		versions("registration"),
		{title: "Reconciles", unit: "ops", queries: []query{{"sum by (cluster, result) (rate(registration_agent_reconciles_total{JOB}[$__rate_interval]))", "{{cluster}} {{result}}"}}},
		{title: "Credentials of agents", unit: "short", about: "Credentials of their own that agents have stored.",
			queries: []query{{"sum by (cluster) (increase(registration_agent_credentials_total{JOB}[$__rate_interval]))", "{{cluster}}"}}},
		{title: "Credentials of add-ons", unit: "short",
			queries: []query{{"sum by (driver, result) (increase(registration_agent_addon_credentials_total{JOB}[$__rate_interval]))", "{{driver}} {{result}}"}}},
		{title: "Requests for tokens of add-ons", unit: "short",
			queries: []query{{"sum by (addon, result) (increase(registration_addon_token_requests_total{JOB}[$__rate_interval]))", "{{addon}} {{result}}"}}},
	}
}

func podIdentityDashboard() []shows {
	const requests, reviews = "podidentity_server_request_duration_seconds", "podidentity_server_token_review_duration_seconds"
	return []shows{
		{title: "Credentials issued", unit: "ops", now: true, queries: []query{{"sum(rate(" + requests + `_count{JOB,result="Issued"}[$__rate_interval]))`, "issued"}}},
		{title: "Pods injected", unit: "ops", now: true, queries: []query{{`sum(rate(podidentity_webhook_pods_total{JOB,result="injected"}[$__rate_interval]))`, "pods"}}},
		{title: "Credentials in memory", unit: "short", now: true, queries: []query{{"sum(podidentity_cached_items{JOB})", "credentials"}}},
		versions("podidentity"),
		{title: "Requests for credentials", unit: "ops", queries: []query{{"sum by (result) (rate(" + requests + "_count{JOB}[$__rate_interval]))", "{{result}}"}}},
		seconds("Time that requests take", requests, "result"),
		{title: "TokenReviews", unit: "ops", queries: []query{{"sum by (result) (rate(" + reviews + "_count{JOB}[$__rate_interval]))", "{{result}}"}}},
		seconds("Time that TokenReviews take", reviews, "result"),
		{title: "Certificate of the server", unit: "s", about: "Time until it expires.", queries: []query{{"min(podidentity_server_certificate_expiry_timestamp_seconds{JOB} > 0) - time()", "left"}}},
		{title: "Admission of pods", unit: "ops", queries: []query{{"sum by (result) (rate(podidentity_webhook_pods_total{JOB}[$__rate_interval]))", "{{result}}"}}},
	}
}

type object = map[string]any

// dashboardOf returns the JSON of Grafana: numbers on top, four in a row, then graphs, two in a row.
func dashboardOf(title, uid, jobsOf string, panels []shows) object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var all []object
	column, line := 0, 0
	for i, p := range panels {
		kind, width, height := "timeseries", 12, 8
		if p.now {
			kind, width, height = "stat", 6, 4
		}
		if i > 0 && (column+width > 24 || p.now != panels[i-1].now) {
			column, line = 0, line+map[bool]int{true: 4, false: 8}[panels[i-1].now]
		}
		var targets []object
		for n, q := range p.queries {
			targets = append(targets, object{"refId": string(rune('A' + n)), "datasource": source, "legendFormat": q.legend, "instant": p.now, "range": !p.now,
				"expr": strings.NewReplacer("{JOB", `{job=~"$job"`).Replace(q.expr)})
		}
		all = append(all, object{"id": i + 1, "type": kind, "title": p.title, "description": p.about, "datasource": source, "targets": targets,
			"gridPos":     object{"x": column, "y": line, "w": width, "h": height},
			"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0, "custom": object{}}, "overrides": []any{}}, "options": object{}})
		column += width
	}
	return object{"title": title, "uid": uid, "tags": []string{"workloadid"}, "editable": true, "schemaVersion": 39, "version": 1, "refresh": "30s",
		"time": object{"from": "now-6h", "to": "now"}, "timezone": "", "annotations": object{"list": []any{}}, "panels": all,
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
			{"name": "job", "type": "query", "label": "Job", "datasource": source, "query": object{"query": "label_values(" + jobsOf + ", job)", "refId": "job"},
				"includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": []string{"All"}, "value": []string{"$__all"}}, "refresh": 2},
		}}}
}

func TestGeneratedDashboards(t *testing.T) {
	jobs := map[string]string{"hub": "registration_hub_clusters", "agent": "registration_agent_joined", "podidentity": "podidentity_build_info"}
	for _, p := range programs() {
		spec, ok := dashboards()[p.name]
		if !ok {
			continue // the token cache's is written by hand
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(dashboardOf(p.title, "workloadid-"+p.name, jobs[p.name], spec)); err != nil {
			t.Fatal(err)
		}
		generated(t, filepath.Join(p.name, "dashboard.json"), text.String())
	}
}
