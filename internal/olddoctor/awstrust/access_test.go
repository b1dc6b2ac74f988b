package awstrust_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A 401 says nothing; EKS says why.
func TestAccessEntries(t *testing.T) {
	entry := authtest.EKSAccessEntry{Groups: []string{"viewers"}, Policies: []string{"AmazonEKSViewPolicy"}}
	with := func(w *world) { w.Cloud.AWS().SetEKSAccessEntry(clusterARN, roleARN, entry) }
	for _, tc := range []struct {
		name, mode string
		status     int
		change     func(w *world)
		result     doctor.Result
		text       string
		not        string
	}{
		{"no entry", "API", 401, func(*world) {}, doctor.Fail, "no access entry for " + roleARN, "aws-auth"},
		{"remedy", "API", 401, func(*world) {}, doctor.Fail, "aws eks create-access-entry --cluster-name prod --region eu-central-1 --principal-arn " + roleARN, ""},
		{"no entry beside a ConfigMap", "API_AND_CONFIG_MAP", 401, func(*world) {}, doctor.Fail, "aws-auth, which was not read", ""},
		{"entry", "API", 401, with, doctor.Fail, "type STANDARD", "there is no access entry"},
		{"groups", "API", 401, with, doctor.Fail, "viewers", ""},
		{"policies", "API", 401, with, doctor.Fail, "AmazonEKSViewPolicy (cluster)", ""},
		{"ConfigMap only", "CONFIG_MAP", 401, with, doctor.Fail, "ConfigMap aws-auth alone, which was not read", "type STANDARD"},
		{"another role's entry", "API", 401, func(w *world) {
			w.Cloud.AWS().SetEKSAccessEntry(clusterARN, strings.Replace(roleARN, "/team", "", 1), entry)
		}, doctor.Fail, "no access entry", ""},
		{"let in", "API", 201, with, doctor.Pass, "by an access entry of type STANDARD (groups: viewers; access policies: AmazonEKSViewPolicy (cluster))", ""},
		{"let in without", "API_AND_CONFIG_MAP", 201, func(*world) {}, doctor.Pass, "without an access entry", ""},
		{"let in by ConfigMap", "CONFIG_MAP", 201, func(*world) {}, doctor.Pass, "as the ConfigMap aws-auth says", ""},
		{"policies not for him", "API", 201, func(w *world) {
			with(w)
			w.Cloud.AWS().Deny(platform, "eks:ListAssociatedAccessPolicies")
		}, doctor.Pass, "access policies: unknown: EKS refuses eks:ListAssociatedAccessPolicies", ""},
		{"mode not for him", "API", 401, func(w *world) { w.Cloud.AWS().Deny(platform, "eks:DescribeCluster") }, doctor.Fail, "no access entry", ""},
		{"mode not for him", "CONFIG_MAP", 401, func(w *world) { w.Cloud.AWS().Deny(platform, "eks:DescribeCluster") }, doctor.Fail, "unknown: EKS answers InvalidRequestException", "there is no access entry"},
		{"not for him", "API", 401, func(w *world) { w.Cloud.AWS().Deny(platform, "eks:DescribeAccessEntry") }, doctor.Fail, "allow eks:DescribeAccessEntry on 'arn:aws:eks:eu-central-1:" + account + ":access-entry/prod/*'", "there is no access entry"},
		{"another account", "API", 401, func(w *world) { w.login("210987654321", "platform") }, doctor.Fail, "the cluster prod is in account " + account, "there is no access entry"},
		{"web page", "API", 401, func(w *world) {
			w.Cloud.AddFault(authtest.Fault{Service: "eks", Action: "DescribeAccessEntry", Body: "<html>"})
		}, doctor.Fail, "unknown: EKS gives no usable answer", "there is no access entry"},
		{"null", "API", 401, func(w *world) {
			w.Cloud.AddFault(authtest.Fault{Service: "eks", Action: "DescribeAccessEntry", Body: "{}"})
		}, doctor.Fail, "unknown: EKS gives no usable answer", "there is no access entry"},
		{"large", "API", 401, func(w *world) {
			w.Cloud.AddFault(authtest.Fault{Service: "eks", Action: "DescribeAccessEntry", Body: `{"a":"` + strings.Repeat("x", 10<<20)})
		}, doctor.Fail, "larger than", "there is no access entry"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.eks(tc.mode, tc.status)
			w.Config.ShowPolicy = true
			tc.change(w)
			report := w.Run()
			f := report.Of("cluster")
			one := &doctor.Report{Findings: []doctor.Finding{*f}}
			if f.Result != tc.result || !strings.Contains(one.String(), tc.text) || tc.not != "" && strings.Contains(one.String(), tc.not) {
				t.Errorf("%+v\n%s", f, one)
			}
			if tc.result == doctor.Fail && (f.Class != "A19" || f.StatusCode != http.StatusUnauthorized) {
				t.Errorf("%+v", f)
			}
			if n := w.Cloud.Calls("eks", ""); n > 6 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// Without a reader, and for clusters that are named by their address only, nobody is asked.
func TestNoAccessReader(t *testing.T) {
	w := newWorld(t)
	w.eks("API", http.StatusUnauthorized)
	w.Config.Access = nil
	if f := w.Run().Of("cluster"); f.Class != "A19" || len(f.Causes) == 0 || w.Cloud.Calls("eks", "DescribeAccessEntry") != 0 {
		t.Errorf("%+v", f)
	}
	if _, err := w.reader.ReadAccess(t.Context(), "prod", roleARN); err == nil {
		t.Error("a name is no ARN")
	}
}

// A session does not tell the path of its role, which an access entry needs: what is not found without it may be there with it.
func TestChainedRole(t *testing.T) {
	w := newWorld(t)
	w.eks("API", http.StatusUnauthorized)
	const last = "arn:aws:iam::" + account + ":role/last"
	w.Cloud.AWS().SetRole(last, authtest.Trust{Principals: []string{roleARN}})
	w.Config.Options = append(w.Config.Options, aws.WithAssumeRole(aws.AssumeRole{RoleARN: last}))
	f := w.Run().Of("cluster")
	one := (&doctor.Report{Findings: []doctor.Finding{*f}}).String()
	if f.Class != "A19" || !strings.Contains(one, "none for "+last+", but the role's path is not known") || strings.Contains(one, "there is no access entry") {
		t.Errorf("%s", one)
	}
	w.Cloud.AWS().SetEKSAccessEntry(clusterARN, last, authtest.EKSAccessEntry{})
	if one = w.Run().String(); !strings.Contains(one, "there is an access entry for the role") {
		t.Errorf("%s", one)
	}
}
