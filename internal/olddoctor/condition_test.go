package doctor_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

func reportOf(findings ...doctor.Finding) *doctor.Report {
	for i := range findings {
		findings[i].Number, findings[i].Message = i+1, "m"
	}
	return &doctor.Report{Findings: findings}
}

// The status is that of the worst finding; a warning does not make an unknown better.
func TestStatusOfConditions(t *testing.T) {
	of := func(id string, result doctor.Result) doctor.Finding {
		return doctor.Finding{ID: id, Result: result}
	}
	warn, unknown, failed := of("token-format", doctor.Warn), of("exchange", doctor.Unknown), of("registry", doctor.Fail)
	works := of("exchange", doctor.Pass)
	for name, tc := range map[string]struct {
		report         *doctor.Report
		status, reason string
	}{
		"nothing":                          {reportOf(works, of("pod", doctor.Skip)), "True", "ChecksPassed"},
		"a warning":                        {reportOf(warn, works), "True", "TokenFormat"},
		"an unknown":                       {reportOf(unknown), "Unknown", "Exchange"},
		"a warning and an unknown":         {reportOf(warn, unknown), "Unknown", "Exchange"},
		"an unknown and a warning":         {reportOf(of("pod", doctor.Unknown), works, warn), "Unknown", "Pod"},
		"a failure and an unknown":         {reportOf(warn, unknown, failed), "False", "Registry"},
		"trust that was not read":          {reportOf(of("trust-anchor", doctor.Unknown), works), "True", "ChecksPassed"},
		"that, and a warning":              {reportOf(of("trust-anchor", doctor.Unknown), works, warn), "True", "TokenFormat"},
		"that, and no exchange":            {reportOf(of("trust-anchor", doctor.Unknown), of("exchange", doctor.Skip)), "Unknown", "TrustAnchor"},
		"that, and an unknown":             {reportOf(of("trust-anchor", doctor.Unknown), of("pod", doctor.Unknown), works), "Unknown", "Pod"},
		"an identity that nobody knows":    {reportOf(works, of("identity", doctor.Unknown)), "Unknown", "Identity"},
		"a registry that does not answer":  {reportOf(works, of("registry", doctor.Unknown)), "Unknown", "Registry"},
		"an examination without exchanges": {reportOf(of("enrolment-csr", doctor.Unknown)), "Unknown", "EnrolmentCsr"},
	} {
		if c := tc.report.Condition("Ready", 1); string(c.Status) != tc.status || c.Reason != tc.reason || c.Message == "" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if c := reportOf(of("trust-anchor", doctor.Unknown), works).Condition("Ready", 1); strings.Contains(c.Message, "all") {
		t.Errorf("%+v", c)
	}
}

// A cloud that cannot be asked is never ready, whatever else there is to warn of.
func TestConditionInOutage(t *testing.T) {
	w := newWorld(t, "aws")
	withPod(func(_ *world, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: "AWS_PROFILE", Value: "x"})
	})(w)
	w.config.Options = append(w.config.Options, auth.WithHTTPClient(&http.Client{Transport: broken{}}))
	report := w.run()
	if report.Of("pod").Result != doctor.Warn || report.Of("exchange").Result != doctor.Unknown {
		t.Fatalf("%s", report)
	}
	if c := report.Condition("Ready", 1); c.Status != "Unknown" {
		t.Errorf("%+v", c)
	}
}

// Who reads a condition has no command line of ours, and does not see the other checks.
func TestConditionsAreForReaders(t *testing.T) {
	for remedy, want := range map[string]string{
		"wid doctor --trust-live, or (aws iam get-role --role-name x) > trust.json": "",
		"name the one: wid doctor --pod a/b":                                        "",
		"run wid doctor in the pod":                                                 "",
		"pass a kubeconfig of the ServiceAccount's cluster":                         "",
		"set Config.Identify, which asks":                                           "",
		"see check 13":                                                              "",
		"run this again with --trust-live after:\n(aws iam get-role) > trust.json":  "",
		"leave --service-account out":                                               "",
		"pass --annotation eks.amazonaws.com/role-arn=x":                            "",
		"set --service-account-issuer to that":                                      "set --service-account-issuer to that",
		"see that the API server runs, and that the kubeconfig and the network lead to it: kubectl version": "",
		"leave it out: --skip identity":                                      "",
		"kubectl create role wid-token -n a --verb=create":                   "kubectl create role wid-token -n a --verb=create",
		"allow it:\nwid doctor --trust-live\naws iam get-role --role-name x": "allow it: aws iam get-role --role-name x",
		"restart the pod:\nkubectl delete pod -n a b":                        "restart the pod: kubectl delete pod -n a b",
	} {
		c := reportOf(doctor.Finding{ID: "pod", Result: doctor.Unknown, Remedy: remedy}).Condition("Ready", 1)
		wanted := "check 1: m"
		if want != "" {
			wanted += "; " + want
		}
		if c.Message != wanted {
			t.Errorf("%q: %q", remedy, c.Message)
		}
	}
}

// ours is what only who runs the examination can follow: our program and its flags, our package, other checks. Flags that programs
// of others have too are not in it.
var ours = regexp.MustCompile(`\bwid [a-z]|\bConfig\.|> trust\.json|\bsee checks? \d|--(service-account|kubeconfig|context|in-cluster|token-file|` +
	`token-stdin|annotation|pod|container|in-pod|jwks-file|trust-file|trust-live|helper|skip|timeout|tls-server-name|unsafe-skip-ca-verification|` +
	`hub-kubeconfig|hub-context|hub-cluster-arn|klusterlet)([^-a-z]|$)`)

// forReaders looks for that in what conditions would say of each finding.
func forReaders(t *testing.T, report *doctor.Report) {
	t.Helper()
	for _, f := range report.Findings {
		alone := doctor.Report{Findings: []doctor.Finding{f}}
		if m := alone.Condition("Ready", 1).Message; ours.MatchString(m) {
			t.Errorf("%s: %s", f.ID, m)
		}
	}
}
