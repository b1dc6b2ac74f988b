package aws_test

import (
	"context"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// access runs the check of a cluster that has answered 401.
func (w *environment) access(cluster string) *doctor.Report {
	w.Helper()
	report := doctor.Run(w.Context(), doctor.Examination{Subject: "tenant-a/app → aws", ShowPolicy: true, Checks: []doctor.Check{
		{ID: "cluster", Title: "the cluster", Run: func(ctx context.Context) doctor.Finding { return w.reader.Access(ctx, cluster, roleARN) }}}})
	verify(w.T, report, w.Hidden...)
	return report
}

func TestAccess(t *testing.T) {
	entry := func(groups ...string) func(w *environment) {
		return func(w *environment) {
			w.Cloud.AWS().SetEKSAccessEntry(clusterARN, roleARN, authtest.EKSAccessEntry{Groups: groups})
		}
	}
	fault := func(body string) func(w *environment) {
		return func(w *environment) {
			w.Cloud.AddFault(authtest.Fault{Service: "eks", Action: "DescribeAccessEntry", Body: body})
		}
	}
	deny := func(action string) func(w *environment) {
		return func(w *environment) { w.Cloud.AWS().Deny(platform, action) }
	}
	for _, row := range []struct {
		name, mode  string
		spoil       func(w *environment)
		class, says string
	}{
		{"no entry", "API", func(*environment) {}, "ClusterRefusesIdentity", "has no access entry for the role"},
		{"command", "API", func(*environment) {}, "ClusterRefusesIdentity", "aws eks create-access-entry --cluster-name prod --region eu-central-1"},
		{"no entry beside a ConfigMap", "API_AND_CONFIG_MAP", func(*environment) {}, "ClusterRefusesIdentity", "aws-auth was not read"},
		{"ConfigMap alone", "CONFIG_MAP", entry(), "ClusterRefusesIdentity", "has no access entries"},
		{"entry", "API", entry("viewers"), "ClusterRefusesIdentity", "refuses it nevertheless"},
		{"entry with hostile groups", "API", entry("plain", "$(reboot)", "\x1b[2J"), "ClusterRefusesIdentity", "refuses it nevertheless"},
		{"entry of another path", "API", func(w *environment) {
			w.Cloud.AWS().SetEKSAccessEntry(clusterARN, strings.Replace(roleARN, "/team", "", 1), authtest.EKSAccessEntry{})
		}, "ClusterRefusesIdentity", "no access entry"},
		{"entry may not be read", "API", deny("eks:DescribeAccessEntry"), "", "AWS refuses eks:DescribeAccessEntry"},
		{"another account", "API", func(w *environment) { w.login("210987654321", "platform") }, "", "in account 210987654321"},
		{"web page", "API", fault("<html>"), "AnswerUnusable", "unusable"},
		{"empty answer", "API", fault("{}"), "AnswerUnusable", "unusable"},
		{"large", "API", fault(`{"a":"` + strings.Repeat("x", 10<<20)), "AnswerUnusable", "unusable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newEnvironment(t)
			if row.mode != "" {
				w.Cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: clusterARN, Endpoint: "https://prod.example", AuthenticationMode: row.mode})
			}
			row.spoil(w)
			want := doctor.Unknown
			if row.class != "" && row.class != "AnswerUnusable" {
				want = doctor.Fail
			}
			expected{check: "cluster", class: row.class, says: row.says, result: want}.expect(t, w.access(clusterARN))
			if n := w.Cloud.Calls("eks", ""); n > 4 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestAccessOfAClusterWithoutARN(t *testing.T) {
	w := newEnvironment(t)
	if f := w.access("prod").Of("cluster"); f.Result != doctor.Skip || w.Cloud.Calls("sts", "") != 0 {
		t.Errorf("%+v", f)
	}
}
