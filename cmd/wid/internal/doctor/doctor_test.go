package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// fixed returns a check with a given outcome.
func fixed(id string, f doctor.Finding, change ...func(*doctor.Check)) doctor.Check {
	c := doctor.Check{ID: id, Title: "the " + id, Run: func(context.Context) doctor.Finding { return f }}
	for _, apply := range change {
		apply(&c)
	}
	return c
}

func needs(ids ...string) func(*doctor.Check) { return func(c *doctor.Check) { c.Needs = ids } }

func overriddenBy(id string) func(*doctor.Check) {
	return func(c *doctor.Check) { c.OverriddenBy = id }
}

func run(t *testing.T, checks ...doctor.Check) *doctor.Report {
	t.Helper()
	return doctor.Run(t.Context(), doctor.Examination{Subject: "tenant-a/app → aws", Checks: checks, Decisive: "exchange"})
}

var (
	good   = doctor.Passed("works")
	bad    = doctor.Failed("TrustPolicyRefusesSubject", doctor.Do("correct it"), "does not work")
	doubt  = good.As(doctor.Warn)
	unsure = doctor.Unclear(doctor.Do("grant it"), "cannot look")
)

func results(r *doctor.Report) (list []doctor.Result) {
	for _, f := range r.Findings {
		list = append(list, f.Result)
	}
	return list
}

func TestNeeds(t *testing.T) {
	r := run(t, fixed("a", bad), fixed("b", good, needs("a")), fixed("c", good, needs("b")), fixed("d", good), fixed("e", unsure), fixed("f", good, needs("e")))
	if got := results(r); !slices.Equal(got, []doctor.Result{doctor.Fail, doctor.Skip, doctor.Skip, doctor.Pass, doctor.Unknown, doctor.Pass}) {
		t.Errorf("got %v", got)
	}
	if by := r.Of("c").Message; by != "needs a" {
		t.Errorf("the last check was skipped because of %q", by)
	}
}

func TestVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		checks   []doctor.Check
		result   doctor.Result
		headline string
		exit     int
	}{
		"healthy":                      {[]doctor.Check{fixed("a", good), fixed("exchange", good)}, doctor.Pass, "", 0},
		"first failure":                {[]doctor.Check{fixed("a", doubt), fixed("b", bad), fixed("exchange", bad)}, doctor.Fail, "b", 1},
		"decisive check unknown":       {[]doctor.Check{fixed("a", doubt), fixed("b", unsure), fixed("exchange", unsure)}, doctor.Unknown, "exchange", 3},
		"warning before unknown":       {[]doctor.Check{fixed("a", unsure), fixed("b", doubt), fixed("exchange", good)}, doctor.Warn, "b", 3},
		"overridden failure":           {[]doctor.Check{fixed("a", bad, overriddenBy("exchange")), fixed("exchange", good)}, doctor.Warn, "a", 3},
		"failure explained beforehand": {[]doctor.Check{fixed("a", bad, overriddenBy("exchange")), fixed("exchange", bad)}, doctor.Fail, "a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := doctor.Run(t.Context(), doctor.Examination{Subject: "x", Checks: tt.checks, Decisive: "exchange"})
			if r.Result != tt.result || r.Headline != tt.headline || r.ExitCode() != tt.exit {
				t.Errorf("got %s, %q, exit code %d", r.Result, r.Headline, r.ExitCode())
			}
		})
	}
}

func TestExplainedFailureRepeatsNoRemedy(t *testing.T) {
	r := run(t, fixed("trust-rule", bad, overriddenBy("exchange")), fixed("exchange", bad))
	if f := r.Of("exchange"); f.Remedy.Text != "" {
		t.Errorf("got %+v", f)
	}
}

func TestPanicIsUnknown(t *testing.T) {
	c := doctor.Check{ID: "a", Run: func(context.Context) doctor.Finding { panic("eyJhbGciOiJub25lIn0") }}
	f := run(t, c, fixed("exchange", good)).Of("a")
	if f.Result != doctor.Unknown || strings.Contains(f.Message, "eyJ") {
		t.Errorf("got %+v", f)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := doctor.Check{ID: "exchange", Timeout: 15 * time.Second, Run: func(ctx context.Context) doctor.Finding {
			<-ctx.Done()
			return doctor.Unclear(doctor.Remedy{}, "sts.eu-central-1.amazonaws.com gives no answer")
		}}
		start := time.Now()
		r := doctor.Run(t.Context(), doctor.Examination{Checks: []doctor.Check{hangs, fixed("identity", good)}, Decisive: "exchange", Timeout: 10 * time.Second})
		if took := time.Since(start); took != 10*time.Second || r.Headline != "exchange" || r.Of("identity").Result != doctor.Unknown {
			t.Errorf("after %s: %s", took, r)
		}
	})
}

// An interrupt is no verdict: a check that it cuts off has no result, and those after it do not run.
func TestInterruptKeepsWhatIsKnown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	interrupts := doctor.Check{ID: "b", Run: func(context.Context) doctor.Finding { cancel(); return bad }}
	var seen []string
	r := doctor.Run(ctx, doctor.Examination{Checks: []doctor.Check{fixed("a", doubt), interrupts, fixed("exchange", good)}, Decisive: "exchange",
		Progress: func(c doctor.Check) { seen = append(seen, c.ID) }})
	if r.Headline != "a" || r.Of("b").Result != doctor.Unknown || !strings.Contains(r.Of("exchange").Message, "interrupted") || !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("progress %v, report:\n%s", seen, r)
	}
}

func TestReportHidesSecretsAndControlCharacters(t *testing.T) {
	const secret = "s3cr3t-t0ken-value"
	f := doctor.Failed("", doctor.Do("use "+secret, "cmd "+secret).OrTrust("If "+secret, secret), "\x1b[31m%s\nforged line", secret).
		Compare("a", secret, "b", "x\x07").Detail("c", secret)
	f.Causes, f.Code = []string{secret}, secret
	r := doctor.Run(t.Context(), doctor.Examination{Subject: secret, Cluster: secret, Checks: []doctor.Check{fixed("a", f)}, ShowPolicy: true,
		Secrets: func() []string { return []string{secret} }})
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	all := string(encoded) + r.String() + r.Text(doctor.TextOptions{Verbose: true})
	if strings.Contains(all, secret) || strings.ContainsAny(all, "\x1b\x07") || strings.Contains(all, "\nforged") {
		t.Errorf("the report holds a secret or a control character:\n%q", all)
	}
}

const trustCommand = "aws iam update-assume-role-policy --role-name tenant-b --policy-document file://policy.json"

func refused() *doctor.Examination {
	f := doctor.Failed("TrustPolicyRefusesSubject", doctor.Do("If the role is wrong:", "kubectl annotate sa -n tenant-a app --overwrite eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME").
		OrTrust("If tenant-a is meant to have it", trustCommand), "The trust policy of role tenant-b does not admit this ServiceAccount.").
		Compare("token", "system:serviceaccount:tenant-a:app", "policy", "system:serviceaccount:tenant-b:app")
	return &doctor.Examination{Subject: "tenant-a/app → aws", Cluster: "cluster prod (https://10.0.0.1:6443)", Decisive: "exchange", Checks: []doctor.Check{
		fixed("claims", good), fixed("discovery", doubt), fixed("trust-rule", f, overriddenBy("exchange")), fixed("exchange", bad), fixed("identity", good, needs("exchange"))}}
}

// Runs of blanks would let a value look like the next line of the report. Only commands keep them: a manifest is indented.
func TestReportForgesNoLines(t *testing.T) {
	for _, blank := range []string{"   ", "\u2800", "\u3164\u3164", "\uffa0", "\u115f\u1160", "\u00a0 ", "\u2003\u3000", "\t\v", "\u200b \u200b"} {
		t.Run(fmt.Sprintf("%q", blank), func(t *testing.T) {
			forged := "y" + blank + "Fix" + blank + "rm"
			f := doctor.Failed("", doctor.Do(forged, "  name: x", "z").OrTrust(forged), "%s", forged).Compare(forged, forged, "b", "c").Detail("d", forged)
			f.Causes = []string{forged}
			r := doctor.Run(t.Context(), doctor.Examination{Subject: forged, Cluster: forged, Checks: []doctor.Check{fixed("x", f)}})
			text := r.Text(doctor.TextOptions{Verbose: true, Width: 200})
			if strings.Count(text, "y Fix rm") != 10 || strings.Contains(text, "Fix"+blank+"rm") || !strings.Contains(text, "  name: x") {
				t.Errorf("got\n%s", text)
			}
		})
	}
}

func TestValuesAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 301)
	f := run(t, fixed("x", bad.Compare("a", long, "b", long).Detail("c", long))).Of("x")
	for _, v := range []doctor.Value{*f.Observed, *f.Expected, f.Details[0]} {
		if v.Text != strings.Repeat("ü", 300)+"…" {
			t.Errorf("%d characters of %s", utf8.RuneCountInString(v.Text), v.Name)
		}
	}
}

func TestText(t *testing.T) {
	got := doctor.Run(t.Context(), *refused()).Text(doctor.TextOptions{PolicyHint: "wid doctor … --show-policy"})
	const want = `✗ tenant-a/app → aws, cluster prod (https://10.0.0.1:6443)
  The trust policy of role tenant-b does not admit this ServiceAccount.
  [trust-rule, TrustPolicyRefusesSubject]
    token   system:serviceaccount:tenant-a:app
    policy  system:serviceaccount:tenant-b:app
  Fix   If the role is wrong:
          kubectl annotate sa -n tenant-a app --overwrite \
            eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME
  Or    If tenant-a is meant to have it, see: wid doctor … --show-policy
  Also  ! discovery, ✗ exchange (--verbose)
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextOfHealthyReport(t *testing.T) {
	got := run(t, fixed("claims", good), fixed("exchange", doctor.Passed("AWS gives credentials of the role.")), fixed("registry", doctor.Skipped("none was named"))).String()
	const want = "✓ tenant-a/app → aws\n  AWS gives credentials of the role.\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPolicyIsShownOnRequest(t *testing.T) {
	e := refused()
	event := doctor.Event{Time: time.Now(), Remedy: doctor.Do("correct it").OrTrust("If tenant-a is meant to have it", trustCommand)}
	e.Checks[0] = fixed("claims", good.With(time.Time{}, time.Time{}, event))
	r := doctor.Run(t.Context(), *e)
	encoded, err := json.Marshal(r)
	if err != nil || strings.Contains(string(encoded)+r.String()+r.Text(doctor.TextOptions{Verbose: true}), "update-assume-role-policy") {
		t.Errorf("%v: the report shows the policy without being asked", err)
	}
	e.Checks[0] = fixed("claims", good)
	e.ShowPolicy = true
	e.Checks[2] = fixed("trust-rule", doctor.Failed("TrustPolicyRefusesSubject", doctor.Do("If the role is wrong:", "correct it").
		OrTrust("If tenant-a is meant to have it", slices.Repeat([]string{trustCommand}, 9)...), "refused"))
	if text := doctor.Run(t.Context(), *e).String(); !strings.Contains(text, "Or    If tenant-a is meant to have it:\n          aws iam update-assume-role-policy") ||
		strings.Count(text, "update-assume-role-policy") != 9 || !strings.Contains(text, "correct it") {
		t.Errorf("the policy is missing:\n%s", text)
	}
}

// A check that ignores its context, such as one that waits for a login program, holds up neither its deadline nor the report.
func TestCheckThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		start := time.Now()
		r := doctor.Run(t.Context(), doctor.Examination{Subject: "x", Checks: []doctor.Check{
			{ID: "login", Run: func(context.Context) doctor.Finding { <-forever; return doctor.Passed("x") }},
			{ID: "later", Run: func(context.Context) doctor.Finding {
				t.Error("runs beside an abandoned check")
				return doctor.Passed("x")
			}},
		}})
		if f := r.Worst(); f == nil || f.Check != "login" || f.Result != doctor.Unknown || time.Since(start) != doctor.DefaultTimeout+time.Second {
			t.Errorf("after %s: %s", time.Since(start), r)
		}
	})
}
