package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cache"
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
	r := run(t, fixed("a", bad), fixed("b", good, needs("a")), fixed("c", good, needs("b")), fixed("d", good),
		fixed("e", unsure), fixed("f", good, needs("e")))
	if got := results(r); !slices.Equal(got,
		[]doctor.Result{doctor.Fail, doctor.Skip, doctor.Skip, doctor.Pass, doctor.Unknown, doctor.Pass}) {
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
		"healthy": {[]doctor.Check{fixed("a", good), fixed("exchange", good)}, doctor.Pass, "", 0},
		"first failure": {[]doctor.Check{fixed("a", doubt), fixed("b", bad), fixed("exchange", bad)},
			doctor.Fail, "b", 1},
		"decisive check unknown": {[]doctor.Check{fixed("a", doubt), fixed("b", unsure), fixed("exchange", unsure)},
			doctor.Unknown, "exchange", 3},
		"warning before unknown": {[]doctor.Check{fixed("a", unsure), fixed("b", doubt), fixed("exchange", good)},
			doctor.Warn, "b", 3},
		"overridden failure": {[]doctor.Check{fixed("a", bad, overriddenBy("exchange")), fixed("exchange", good)},
			doctor.Warn, "a", 3},
		"failure explained beforehand": {[]doctor.Check{fixed("a", bad, overriddenBy("exchange")), fixed("exchange", bad)},
			doctor.Fail, "a", 1},
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
		r := doctor.Run(t.Context(),
			doctor.Examination{Checks: []doctor.Check{hangs, fixed("identity", good)}, Decisive: "exchange",
				Timeout: 10 * time.Second})
		if took := time.Since(start); took != 10*time.Second || r.Headline != "exchange" ||
			r.Of("identity").Result != doctor.Unknown {
			t.Errorf("after %s: %s", took, r)
		}
	})
}

// An interrupt is no verdict: a check that it cuts off has no result, and those
// after it do not run.
func TestInterruptKeepsWhatIsKnown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	interrupts := doctor.Check{ID: "b", Run: func(context.Context) doctor.Finding { cancel(); return bad }}
	var seen []string
	r := doctor.Run(ctx, doctor.Examination{Checks: []doctor.Check{fixed("a", doubt), interrupts, fixed("exchange", good)},
		Decisive: "exchange",
		Progress: func(c doctor.Check) { seen = append(seen, c.ID) }})
	if r.Headline != "a" || r.Of("b").Result != doctor.Unknown ||
		!strings.Contains(r.Of("exchange").Message, "interrupted") || !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("progress %v, report:\n%s", seen, r)
	}
}

func TestReportHidesSecretsAndControlCharacters(t *testing.T) {
	const secret = "s3cr3t-t0ken-value"
	f := doctor.Failed("", doctor.Do("use "+secret, "cmd "+secret).OrTrust("If "+secret, secret),
		"\x1b[31m%s\nforged line", secret).
		Compare("a", secret, "b", "x\x07").Detail("c", secret)
	f.Causes, f.Code = []string{secret}, secret
	r := doctor.Run(t.Context(),
		doctor.Examination{Subject: secret, Cluster: secret, Checks: []doctor.Check{fixed("a", f)}, ShowPolicy: true,
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
	f := doctor.Failed("TrustPolicyRefusesSubject",
		doctor.Do("If the role is wrong:",
			"kubectl annotate sa -n tenant-a app --overwrite eks.amazonaws.com/role-arn=arn:aws:iam::123456789012:role/NAME").
			OrTrust("If tenant-a is meant to have it", trustCommand),
		"The trust policy of role tenant-b does not admit this ServiceAccount.").
		Compare("token", "system:serviceaccount:tenant-a:app", "policy", "system:serviceaccount:tenant-b:app")
	return &doctor.Examination{Subject: "tenant-a/app → aws", Cluster: "cluster prod (https://10.0.0.1:6443)",
		Decisive: "exchange", Checks: []doctor.Check{
			fixed("claims", good), fixed("discovery", doubt), fixed("trust-rule", f, overriddenBy("exchange")),
			fixed("exchange", bad), fixed("identity", good, needs("exchange"))}}
}

// Runs of blanks would let a value look like the next line of the report. Only
// commands keep them: a manifest is indented.
func TestReportForgesNoLines(t *testing.T) {
	for _, blank := range []string{"   ", "\u2800", "\u3164\u3164", "\uffa0", "\u115f\u1160", "\u00a0 ", "\u2003\u3000",
		"\t\v", "\u200b \u200b"} {
		t.Run(fmt.Sprintf("%q", blank), func(t *testing.T) {
			forged := "y" + blank + "Fix" + blank + "rm"
			f := doctor.Failed("", doctor.Do(forged, "  name: x", "z").OrTrust(forged), "%s", forged).Compare(forged, forged,
				"b", "c").Detail("d", forged)
			f.Causes = []string{forged}
			r := doctor.Run(t.Context(),
				doctor.Examination{Subject: forged, Cluster: forged, Checks: []doctor.Check{fixed("x", f)}})
			text := r.Text(doctor.TextOptions{Verbose: true, Width: 200})
			if strings.Count(text, "y Fix rm") != 10 || strings.Contains(text, "Fix"+blank+"rm") ||
				!strings.Contains(text, "  name: x") {
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
	got := run(t, fixed("claims", good), fixed("exchange", doctor.Passed("AWS gives credentials of the role.")),
		fixed("registry", doctor.Skipped("none was named"))).String()
	const want = "✓ tenant-a/app → aws\n  AWS gives credentials of the role.\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPolicyIsShownOnRequest(t *testing.T) {
	e := refused()
	event := doctor.Event{Time: time.Now(),
		Remedy: doctor.Do("correct it").OrTrust("If tenant-a is meant to have it", trustCommand)}
	e.Checks[0] = fixed("claims", good.With(time.Time{}, time.Time{}, event))
	r := doctor.Run(t.Context(), *e)
	encoded, err := json.Marshal(r)
	if err != nil || strings.Contains(string(encoded)+r.String()+r.Text(doctor.TextOptions{Verbose: true}),
		"update-assume-role-policy") {
		t.Errorf("%v: the report shows the policy without being asked", err)
	}
	e.Checks[0] = fixed("claims", good)
	e.ShowPolicy = true
	e.Checks[2] = fixed("trust-rule",
		doctor.Failed("TrustPolicyRefusesSubject", doctor.Do("If the role is wrong:", "correct it").
			OrTrust("If tenant-a is meant to have it", slices.Repeat([]string{trustCommand}, 9)...), "refused"))
	if text := doctor.Run(t.Context(), *e).String(); !strings.Contains(text,
		"Or    If tenant-a is meant to have it:\n          aws iam update-assume-role-policy") ||
		strings.Count(text, "update-assume-role-policy") != 9 || !strings.Contains(text, "correct it") {
		t.Errorf("the policy is missing:\n%s", text)
	}
}

// A check that ignores its context, such as one that waits for a login program,
// holds up neither its deadline nor the report.
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
		if f := r.Worst(); f == nil || f.Check != "login" || f.Result != doctor.Unknown ||
			time.Since(start) != doctor.DefaultTimeout+time.Second {
			t.Errorf("after %s: %s", time.Since(start), r)
		}
	})
}

// A grant is the alternative of a finding, shown on request only, and never a
// part of a condition.
func TestGrantsAreTheAlternative(t *testing.T) {
	const grant = "open the door"
	for _, e := range []auth.Error{
		{Provider: "aws", StatusCode: 403, Code: "AccessDenied"},
		{Provider: "aws", StatusCode: 403, Message: "x: ecr:GetAuthorizationToken"},
		{Provider: "aws", StatusCode: 403, Message: "x: eks:DescribeCluster"},
		{Provider: "azure", StatusCode: 400, Code: "AADSTS501051"},
		{Provider: "azure", StatusCode: 401, Message: "aka.ms/acr/authorization"},
		{Provider: "azure", StatusCode: 403, Code: "AuthorizationFailed"},
		{Provider: "gcp", StatusCode: 403, Message: "iam.serviceAccounts.getAccessToken"},
		{Provider: "gcp", StatusCode: 403, Message: "artifactregistry.x"},
		{Provider: "gcp", StatusCode: 403, Message: "container.clusters.get"},
	} {
		e.Reason, e.Remedy = auth.ErrDenied, grant
		f := doctor.Refusal("it", &e)
		t.Run(f.Class, func(t *testing.T) {
			if f.Result != doctor.Fail || f.Remedy.Or == nil || f.Remedy.Text == "" {
				t.Fatalf("%+v", f)
			}
			c := cause.ConditionOf(&e, "Ready", 1)
			if text := run(t, fixed("exchange", f)).String() + c.Message; strings.Contains(text, grant) ||
				strings.Contains(text, f.Remedy.Or.Commands[0]) {
				t.Errorf("%s", text)
			}
		})
	}
}

// Report, JSON and conditions name a cause with the same word.
func TestReasonIsTheSameEverywhere(t *testing.T) {
	err := &auth.Error{Reason: auth.ErrDenied, Provider: "azure", StatusCode: 401, Code: "AADSTS7002138"}
	r := run(t, fixed("exchange", doctor.Refusal("it", err)))
	encoded, encoding := json.Marshal(r)
	if encoding != nil || !strings.Contains(r.String(), "[exchange, SubjectCaseDiffers]") ||
		!strings.Contains(string(encoded), `"class":"SubjectCaseDiffers"`) {
		t.Errorf("%s%s", r, encoded)
	}
	if c := cause.ConditionOf(err, "Ready", 1); c.Reason != "SubjectCaseDiffers" {
		t.Errorf("%+v", c)
	}
}

// A caller whose patience has ended has got no answer at all.
func TestLateAnswerIsNotUnusable(t *testing.T) {
	for name, err := range map[string]error{
		"patience":          &cache.PendingError{},
		"wrapped patience":  &auth.Error{Reason: auth.ErrUnavailable, Message: "still running", Err: &cache.PendingError{}},
		"deadline":          context.DeadlineExceeded,
		"wrapped deadline":  &auth.Error{Reason: auth.ErrUnavailable, Message: "STS: timeout", Err: context.DeadlineExceeded},
		"deadline of a URL": &url.Error{Op: "Post", URL: "https://sts.example", Err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			if f := doctor.Refusal("AWS STS", err); f.Class != "ServiceUnreachable" || f.Result != doctor.Unknown ||
				f.Message != "AWS STS has not answered in time." {
				t.Errorf("%+v", f)
			}
		})
	}
}

// The headline is the first failure of the chain, or a newer Warning Event of a
// part up to there.
func TestChainHeadline(t *testing.T) {
	now := time.Now()
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	event := func(reason string, minutes int) doctor.Event {
		return doctor.Event{Time: ago(minutes), Reason: reason, Message: "said so", Object: "Secret x",
			Remedy: doctor.Do("Do "+reason+".", "kubectl get "+reason)}
	}
	well, failed := doctor.Passed("well"), doctor.Failed("Wrong", doctor.Do("Mend it."), "it is wrong")
	for name, tc := range map[string]struct {
		agent, credential, lease doctor.Finding
		want                     string
	}{
		"all well": {well, well, well, "PASS "},
		"the credential was not tried": {well, doctor.Unclear(doctor.Remedy{}, "no address"), well,
			"UNKNOWN credential"},
		"a part that could not look": {well, well, doctor.Unclear(doctor.Remedy{}, "no right"),
			"UNKNOWN lease: no right"},
		"the first failure": {well, failed.With(now, time.Time{}), failed.With(now, time.Time{}),
			"FAIL credential: it is wrong"},
		"an Event after the last success": {well.With(time.Time{}, ago(5), event("Refused", 1)), well, well,
			"FAIL agent: | Secret x says: said so"},
		"an Event before the last success": {well.With(time.Time{}, ago(1), event("Refused", 5)), well, well, "PASS "},
		"an Event newer than the failure": {well.With(time.Time{}, ago(9), event("Refused", 1)), well,
			failed.With(ago(5), time.Time{}), "FAIL agent: | Secret x says: said so"},
		"an Event older than the failure": {well.With(time.Time{}, ago(9), event("Refused", 7)), well,
			failed.With(ago(5), time.Time{}), "FAIL lease: it is wrong"},
		"an Event explains what is missing": {well.With(time.Time{}, ago(9), event("Refused", 7)), failed, well,
			"FAIL agent: | Secret x says: said so"},
		"an Event behind the first failure": {well, failed.With(ago(5), time.Time{}),
			well.With(time.Time{}, time.Time{}, event("Refused", 1)), "FAIL credential: it is wrong"},
		"the newest of two Events of one part": {well.With(time.Time{}, time.Time{}, event("Old", 8), event("New", 2)), well,
			well, "FAIL agent: | Secret x says: said so"},
	} {
		t.Run(name, func(t *testing.T) {
			part := func(id string, f doctor.Finding) doctor.Check {
				return doctor.Check{ID: id, Title: id, Run: func(context.Context) doctor.Finding { return f }}
			}
			r := doctor.Run(t.Context(), doctor.Examination{Subject: "it", Chain: true, Decisive: "credential",
				Checks: []doctor.Check{part("agent", tc.agent), part("credential", tc.credential), part("lease", tc.lease)}})
			result, said, _ := strings.Cut(tc.want, " ")
			check, message, _ := strings.Cut(said, ": ")
			if string(r.Result) != result || r.Headline != check || !strings.Contains(r.String(), message) {
				t.Errorf("want %q:\n%s %s\n%s", tc.want, r.Result, r.Headline, r)
			}
			if r.ByEvent && (r.Summary().Remedy.Text != "Do "+r.Worst().Events[0].Reason+"." ||
				strings.HasPrefix(name, "the newest") && r.Worst().Events[0].Reason != "New") {
				t.Errorf("action %+v of %+v", r.Summary(), r.Worst().Events)
			}
		})
	}
}

// A report shortens evidence, to the width of the screen too. It never cuts a
// remedy: a pasted part of a command would do something else.
func TestTextCutsNoRemedy(t *testing.T) {
	long, command := strings.TrimSpace(strings.Repeat("evidence ", 120)), "kubectl get "+strings.Repeat("a", 50)
	f := doctor.Failed("Wrong", doctor.Do("Run:", slices.Repeat([]string{command}, 40)...), "%s", long).Compare("a", "1",
		"b", "2").
		With(time.Now(), time.Time{}, doctor.Event{Time: time.Now().Add(-time.Hour), Reason: "R", Message: long})
	f.Causes = slices.Repeat([]string{"one of many causes"}, 9)
	for name, isChain := range map[string]bool{"a chain": true, "checks": false} {
		t.Run(name, func(t *testing.T) {
			r := doctor.Run(t.Context(),
				doctor.Examination{Subject: "it", Chain: isChain, Decisive: "a", Checks: []doctor.Check{fixed("a", f)}})
			text, verbose := r.String(), r.Text(doctor.TextOptions{Verbose: true})
			if strings.Count(text, command) != 40 || strings.Count(text, "evidence") > 80 || strings.Count(text, "causes") > 1 {
				t.Errorf("%s", text)
			}
			if strings.Count(verbose, command) != 40 || strings.Count(verbose, "evidence") < 300 ||
				strings.Count(verbose, "causes") != 9 {
				t.Errorf("--verbose: %s", verbose)
			}
			for line := range strings.Lines(text) {
				if utf8.RuneCountInString(line) > 81 {
					t.Errorf("too wide: %q", line)
				}
			}
		})
	}
}
