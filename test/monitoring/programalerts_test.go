package monitoring_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// Series of programs that work for five hours, a sample a minute. CHANGE marks
// what the cases replace.
const (
	hubWorks = `registration_build_info{job="hub",component="hub",version="v0.1.0"} 1x300
registration_build_info{job="agent",component="agent",version="v0.1.0"} 1x300
registration_relay_requests_total{job="hub",credential="certificate",code="200"} 0+10x300
registration_relay_requests_total{job="hub",credential="certificate",code="502"} 0x300
registration_hub_clusters{job="hub",state="accepted"} 40x300
registration_hub_clusters{job="hub",state="pending"} 0x300
registration_hub_clusters{job="hub",state="refused"} 0x300
registration_hub_clusters{job="hub",state="deleting"} 0x300
registration_hub_driver_duration_seconds_count{job="hub",operation="grant",driver="csr",result="success"} 0+4x300
registration_hub_driver_duration_seconds_count{job="hub",operation="grant",driver="csr",result="failure"} 0x300
registration_hub_driver_duration_seconds_count{job="hub",operation="revoke",driver="csr",result="failure"} 0x300
registration_hub_joined_clusters{job="hub",available="True"} 40x300
registration_hub_joined_clusters{job="hub",available="Unknown"} 0x300
registration_awsirsa_roles{job="hub"} 10x300
registration_awsirsa_max_roles{job="hub"} 1000x300
`
	agentWorks = `registration_build_info{job="agent",component="agent",version="v0.1.0"} 1x300
registration_agent_joined{job="agent",cluster="c",pod="a"} 1x300
registration_agent_joined{job="agent",cluster="c",pod="b"} 0x300
registration_agent_reconciles_total{job="agent",cluster="c",result="joined"} 0+1x300
registration_agent_reconciles_total{job="agent",cluster="c",result="error"} 0x300
registration_agent_addon_credentials_total{job="agent",cluster="c",driver="token",result="failed"} 0x300
registration_addon_token_expiry_timestamp_seconds{job="agent",addon="a"} 90000x300
`
	podsWork = `podidentity_build_info{job="server",component="server",version="v0.1.0"} 1x300
podidentity_build_info{job="webhook",component="webhook",version="v0.1.0"} 1x300
podidentity_webhook_pods_total{job="webhook",result="injected"} 0+3x300
podidentity_webhook_pods_total{job="webhook",result="error"} 0x300
podidentity_webhook_pods_total{job="webhook",result="denied"} 0x300
podidentity_server_request_duration_seconds_count{job="server",result="Issued"} 0+10x300
podidentity_server_request_duration_seconds_count{job="server",result="Unavailable"} 0x300
podidentity_server_request_duration_seconds_count{job="server",result="RoleNotAllowed"} 0x300
podidentity_server_request_duration_seconds_count{job="server",result="NotAttested"} 0x300
podidentity_server_request_duration_seconds_bucket{job="server",result="Issued",le="1.024"} 0+10x300
podidentity_server_request_duration_seconds_bucket{job="server",result="Issued",le="4.096"} 0+10x300
podidentity_server_request_duration_seconds_bucket{job="server",result="Issued",le="+Inf"} 0+10x300
podidentity_server_certificate_expiry_timestamp_seconds{job="server"} 7776000x300
podidentity_server_token_review_duration_seconds_count{job="server",result="success"} 0+10x300
podidentity_server_token_review_duration_seconds_count{job="server",result="failure"} 0x300
`
)

// Each trouble of a program raises the alert that is named for it, and no
// other. The changes are pairs of a series and its new samples.
func TestAlertsOfPrograms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program, works string
		changes        []string
		want           string
	}{
		"hub works": {"hub", hubWorks, nil, ""},
		"hub is absent": {"hub", hubWorks, []string{`registration_build_info{job="hub"`, "1x60 stale"},
			"RegistrationHubAbsent"},
		"revocation": {"hub", hubWorks, []string{`operation="revoke"`, "0x60 0+1x240"},
			"RegistrationHubRevocationFailing"},
		"grants fail": {"hub", hubWorks, []string{`operation="grant",driver="csr",result="failure"`, "0x60 0+6x240"},
			"RegistrationHubDriverFailing"},
		"a grant fails":   {"hub", hubWorks, []string{`operation="grant",driver="csr",result="failure"`, "0x60 0+1x240"}, ""},
		"refused":         {"hub", hubWorks, []string{`state="refused"`, "0x60 1x240"}, "RegistrationHubClustersRefused"},
		"refused for 20m": {"hub", hubWorks, []string{`state="refused"`, "0x60 1x20 0x220"}, ""},
		"pending for 4 h": {"hub", hubWorks, []string{`state="pending"`, "0x60 1x240"}, ""},
		"pending": {"hub", hubWorks,
			[]string{`state="pending"`, "0x60 1x1540", `registration_build_info{job="hub"`, "1x1600"},
			"RegistrationHubClustersPending"},
		"old agents": {"hub", strings.Replace(hubWorks, `"agent",version="v0.1.0"`, `"agent",version="v0.0.9"`, 1),
			[]string{`registration_build_info{job="agent"`, "1x1600", `registration_build_info{job="hub"`, "1x1600"},
			"RegistrationVersionsDiffer"},
		"deleting": {"hub", hubWorks, []string{`state="deleting"`, "0x60 1x240"}, "RegistrationHubClustersDeleting"},
		"lost clusters": {"hub", hubWorks, []string{`available="Unknown"`, "0x60 2x240"},
			"RegistrationClustersNotAvailable"},
		"many roles": {"hub", hubWorks, []string{`registration_awsirsa_roles`, "10x60 950x240"},
			"RegistrationHubRolesNearLimit"},
		"relay fails": {"hub", hubWorks, []string{`code="502"`, "0x60 0+30x240"}, "RegistrationRelayHubFailing"},
		"a few 502":   {"hub", hubWorks, []string{`code="502"`, "0x60 0+5x240"}, ""},
		"an upgrade":  {"hub", hubWorks, []string{`registration_build_info{job="agent"`, "1x60 stale"}, ""},

		"agent works": {"agent", agentWorks, nil, ""},
		"agent is absent": {"agent", agentWorks, []string{`registration_build_info`, "1x60 stale"},
			"RegistrationAgentAbsent"},
		"not joined":     {"agent", agentWorks, []string{`pod="a"`, "1x60 0x240"}, "RegistrationAgentNotJoined"},
		"another leader": {"agent", agentWorks, []string{`pod="a"`, "1x60 0x240", `pod="b"`, "0x65 1x235"}, ""},
		"reconciles fail": {"agent", agentWorks, []string{`result="error"`, "0x60 0+3x240"},
			"RegistrationAgentFailing"},
		"add-on fails": {"agent", agentWorks, []string{`result="failed"`, "0x60 0+1x240"},
			"RegistrationAddOnFailing"},
		"token expires": {"agent", agentWorks, []string{`addon="a"`, "14400x300"}, "RegistrationAddOnTokenExpires"},
		"tokens of an hour": {"agent", agentWorks,
			[]string{`addon="a"`, "3600x47 6480x47 9360x47 12240x47 15120x47 18000x47 20880x12"}, ""},
		"pod identity works": {"podidentity", podsWork, nil, ""},
		"server is absent": {"podidentity", podsWork, []string{`podidentity_build_info`, "1x60 stale"},
			"PodIdentityServerAbsent"},
		"webhook is absent": {"podidentity", podsWork, []string{`podidentity_build_info{job="webhook"`, "1x60 stale"},
			"PodIdentityWebhookAbsent"},
		"admission fails": {"podidentity", podsWork,
			[]string{`podidentity_webhook_pods_total{job="webhook",result="error"`, "0x60 0+1x240"},
			"PodIdentityAdmissionFailing"},
		"pods are denied": {"podidentity", podsWork, []string{`result="denied"`, "0x60 0+1x240"},
			"PodIdentityPodsDenied"},
		"STS is down": {"podidentity", podsWork, []string{`result="Unavailable"`, "0x60 0+9x240"},
			"PodIdentityServerFailing"},
		"STS was down for 5 min": {"podidentity", podsWork, []string{`result="Unavailable"`, "0x60 0+9x5 45x235"}, ""},
		"reviews fail": {"podidentity", podsWork,
			[]string{`token_review_duration_seconds_count{job="server",result="failure"`, "0x60 0+9x240"},
			"PodIdentityTokenReviewsFailing"},
		"role is not allowed": {"podidentity", podsWork, []string{`result="RoleNotAllowed"`, "0x60 0+1x240"},
			"PodIdentityRefused"},
		"many bad tokens": {"podidentity", podsWork, []string{`result="NotAttested"`, "0x60 0+60x240"},
			"PodIdentityNotAttested"},
		"a few bad tokens": {"podidentity", podsWork, []string{`result="NotAttested"`, "0x60 0+1x240"}, ""},
		"certificate": {"podidentity", podsWork, []string{`certificate_expiry`, "1000000x300"},
			"PodIdentityCertificateExpires"},
		"without TLS": {"podidentity", podsWork, []string{`certificate_expiry`, "0x300"}, ""},
		"slow":        {"podidentity", podsWork, []string{`le="1.024"`, "0x300"}, "PodIdentitySlow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			during := length
			if strings.Contains(strings.Join(tc.changes, " "), "x1600") {
				during = 26 * time.Hour
			}
			got := slices.Sorted(maps.Keys(fired(t, tc.program, "load 1m\n"+changed(t, tc.works, tc.changes), during)))
			if all := strings.Join(got, " "); all != tc.want {
				t.Errorf("fired: %q, want %q", all, tc.want)
			}
		})
	}
}

// changed replaces the samples of series.
func changed(t *testing.T, works string, changes []string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(works), "\n")
	for i := 0; i < len(changes); i += 2 {
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, changes[i]) })
		if at < 0 {
			t.Fatalf("no series %s", changes[i])
		}
		series, _, _ := strings.Cut(lines[at], "} ")
		lines[at] = series + "} " + changes[i+1]
	}
	return "  " + strings.Join(lines, "\n  ")
}

// Every panel has something to show while all metrics count.
func TestPanelsShowSomething(t *testing.T) {
	t.Parallel()
	const values = "pending accepted refused success failure Issued injected denied cache_hit cache_miss"
	for _, p := range programs() {
		t.Run(p.name, func(t *testing.T) {
			var series strings.Builder
			series.WriteString("load 1m\n")
			for name, labels := range p.known(t) {
				for value := range strings.FieldsSeq(values) {
					all := []string{`job="j"`}
					for _, label := range labels {
						all = append(all, fmt.Sprintf("%s=%q", label, map[bool]string{true: "1", false: value}[label == "le"]))
					}
					line := fmt.Sprintf("  %s{%s} 0+1x60\n", name, strings.Join(all, ","))
					if strings.Contains(series.String(), line) {
						continue
					}
					series.WriteString(line)
					if slices.Contains(labels, "le") {
						series.WriteString(strings.Replace(line, `le="1"`, `le="+Inf"`, 1))
					}
				}
			}
			storage := promqltest.LoadedStorage(t, series.String())
			defer storage.Close() //nolint:errcheck // in memory
			engine := promqltest.NewTestEngine(t, false, 0, 100_000_000)
			for _, panel := range panels(t, p.name) {
				for _, target := range panel.Targets {
					query, err := engine.NewInstantQuery(t.Context(), storage, promql.NewPrometheusQueryOpts(false, 0),
						variables.Replace(target.Expr), time.Unix(0, 0).Add(time.Hour))
					if err != nil {
						t.Fatal(err)
					}
					shown, err := query.Exec(t.Context()).Vector()
					if err != nil || len(shown) == 0 || math.IsNaN(shown[0].F) {
						t.Errorf("the panel %q shows nothing for %s: %v, %v", panel.Title, target.Expr, shown, err)
					}
					query.Close()
				}
			}
		})
	}
}
