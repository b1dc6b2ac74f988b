package doctor_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

const oldRole = "arn:aws:iam::" + account + ":role/tenant-a-old"

// accepts has the cloud take another audience as well.
func accepts(audience string) spec {
	return func(w *world, _ *corev1.Pod) {
		fetch := w.issuer.HTTPClient()
		w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), fetch, aws.DefaultAudience, audience)
		w.federate(authtest.FederatedCredential{Issuer: w.issuer.URL(), Subject: subject, Audience: audience, Fetch: fetch})
	}
}

func mayChoose(w *world, _ *corev1.Pod) { w.allowAudience() }

func admitted(role string) spec {
	return func(w *world, _ *corev1.Pod) {
		w.cloud.AWS().SetRole(role, authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{subject}})
	}
}

func annotated(role string) spec {
	return func(w *world, _ *corev1.Pod) { w.account.Annotations[aws.RoleARNAnnotation] = role }
}

// secondContainer has a role of its own, and the token.
func secondContainer(name, role string, more ...spec) spec {
	return beside(name, true, append([]spec{env("AWS_ROLE_ARN", role)}, more...)...)
}

// The exchange is tried with what the pod has, and nothing passes for a pod that gets no credentials.
func TestExchangeOfPod(t *testing.T) {
	for name, tc := range map[string]struct {
		provider                string
		change                  spec
		pod, exchange, identity doctor.Result
		says                    string // of the exchange
	}{
		"a role that does not exist": {"aws", all(annotatedLongAgo, env("AWS_ROLE_ARN", oldRole)),
			doctor.Fail, doctor.Fail, doctor.Skip, `tried with AWS_ROLE_ARN of the container "c"`},
		"a role that is meant": {"aws", all(annotatedLongAgo, env("AWS_ROLE_ARN", oldRole), admitted(oldRole)),
			doctor.Warn, doctor.Pass, doctor.Pass, "tried with AWS_ROLE_ARN"},
		"a new annotation that is broken": {"aws", all(annotated(oldRole)),
			doctor.Fail, doctor.Pass, doctor.Pass, "tried with AWS_ROLE_ARN"},
		"a client that does not exist": {"azure", env("AZURE_CLIENT_ID", "22222222-2222-4333-8444-555555555555"),
			doctor.Fail, doctor.Fail, doctor.Skip, "tried with AZURE_CLIENT_ID"},
		"an audience that is refused": {"aws", all(mayChoose, audienceOfVolume("vault")),
			doctor.Fail, doctor.Fail, doctor.Skip, "tried with audience"},
		"an audience that is taken": {"aws", all(mayChoose, audienceOfVolume("chosen"), accepts("chosen")),
			doctor.Warn, doctor.Pass, doctor.Pass, "tried with audience"},
		"an audience that is taken, azure": {"azure", all(mayChoose, audienceOfVolume("chosen"), accepts("chosen")),
			doctor.Warn, doctor.Pass, doctor.Pass, "tried with audience"},
		"an audience that may not be asked for": {"aws", audienceOfVolume("vault"),
			doctor.Unknown, doctor.Unknown, doctor.Pass, "tried without the audience"},
		"an audience beside a token at hand": {"aws", all(mayChoose, audienceOfVolume("vault"), func(w *world, _ *corev1.Pod) { w.config.Token = w.sign(nil) }),
			doctor.Unknown, doctor.Unknown, doctor.Pass, "tried without the audience"},
		"the audience of another cloud": {"aws", all(mayChoose, audienceOfVolume(azure.DefaultAudience)),
			doctor.Fail, doctor.Pass, doctor.Pass, "tried without the audience"},
		"the API server's audience": {"aws", all(mayChoose, audienceOfVolume("https://kubernetes.default.svc")),
			doctor.Fail, doctor.Pass, doctor.Pass, "tried without the audience"},
		"the container that works": {"aws", all(noWebhook, secondContainer("bad", oldRole), named("c")),
			doctor.Pass, doctor.Pass, doctor.Pass, `of the container "c"`},
		"the container that does not": {"aws", all(noWebhook, secondContainer("bad", oldRole), named("bad")),
			doctor.Pass, doctor.Fail, doctor.Skip, `of the container "bad"`},
		"containers that differ": {"aws", all(noWebhook, admitted(oldRole), secondContainer("other", oldRole)),
			doctor.Unknown, doctor.Pass, doctor.Pass, `of the container "other"`},
		"containers that differ, annotated": {"aws", all(annotatedLongAgo, admitted(oldRole), secondContainer("other", oldRole)),
			doctor.Unknown, doctor.Pass, doctor.Pass, `of the container "other"`},
		"one of them by name": {"aws", all(annotatedLongAgo, secondContainer("other", oldRole), named("c")),
			doctor.Pass, doctor.Pass, doctor.Pass, "the exchange works"},
		"as annotated": {"aws", all(), doctor.Pass, doctor.Pass, doctor.Pass, "the exchange works"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.provider)
			withPod(tc.change)(w)
			report := w.run()
			for id, want := range map[string]doctor.Result{"pod": tc.pod, "exchange": tc.exchange, "identity": tc.identity} {
				if f := report.Of(id); f.Result != want || want != doctor.Pass && want != doctor.Skip && f.Remedy == "" {
					t.Errorf("%s is not %s:\n%s", id, want, report)
				}
				pasteable(t, report.Of(id))
			}
			if f := report.Of("exchange"); !strings.Contains(f.Message, tc.says) || strings.Contains(tc.says, "works") && strings.Contains(f.Message, "tried") {
				t.Errorf("%+v", f)
			}
			if tc.pod != doctor.Pass && report.Condition("Ready", 1).Status == "True" && tc.exchange != doctor.Pass {
				t.Errorf("%+v", report.Condition("Ready", 1))
			}
		})
	}
}

// What the pod has is what remedies are about, but not what they have the cloud trust.
func TestRemediesForPod(t *testing.T) {
	w := newWorld(t, "aws")
	withPod(all(mayChoose, annotatedLongAgo, env("AWS_ROLE_ARN", oldRole), audienceOfVolume("vault")))(w)
	report := w.run()
	if first := report.Worst(); first.ID != "pod" || !strings.Contains(first.Remedy, "remove AWS_ROLE_ARN") {
		t.Errorf("%+v", first)
	}
	for _, f := range report.Findings {
		if strings.Contains(f.Remedy, "update-assume-role-policy") || strings.Contains(f.Remedy, "vault") {
			t.Errorf("%+v", f)
		}
	}
}

// The caller's Options stay as they are.
func TestOptionsAreNotChanged(t *testing.T) {
	w := newWorld(t, "aws")
	withPod(all(mayChoose, audienceOfVolume("vault")))(w)
	spare := append(make([]auth.Option, 0, 9), w.config.Options...)
	w.config.Options = spare
	w.run()
	if all := spare[:cap(spare)]; all[len(spare)] != nil {
		t.Error("an option was added behind the caller's")
	}
}

// A subPathExpr is resolved as far as the pod's specification says how.
func TestSubPathExpr(t *testing.T) {
	mounted := func(expression, file string, variables ...corev1.EnvVar) spec {
		return func(_ *world, pod *corev1.Pod) {
			c := &pod.Spec.Containers[0]
			c.VolumeMounts[0] = corev1.VolumeMount{Name: "identity", MountPath: "/tok", SubPathExpr: expression}
			setEnv(c, corev1.EnvVar{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: file})
			for _, v := range variables {
				setEnv(c, v)
			}
			source := &pod.Spec.Volumes[0].Projected.Sources[0]
			source.ServiceAccountToken.Path = "east/token"
		}
	}
	site := corev1.EnvVar{Name: "SITE", Value: "east"}
	secret := corev1.EnvVar{Name: "SITE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
	otherAudience := func(_ *world, pod *corev1.Pod) {
		p := pod.Spec.Volumes[0].Projected
		p.Sources = append([]corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "west/token"}}}, p.Sources...)
	}
	for name, tc := range map[string]struct {
		change spec
		want   doctor.Result
		says   string
	}{
		"a variable":             {mounted("$(SITE)", "/tok/token", site), doctor.Warn, "subPath"},
		"a part of it":           {mounted("ea$(SITE)", "/tok/token", corev1.EnvVar{Name: "SITE", Value: "st"}), doctor.Warn, "subPath"},
		"a file":                 {mounted("$(SITE)/token", "/tok", site), doctor.Warn, "subPath"},
		"another one":            {mounted("$(SITE)", "/tok/token", corev1.EnvVar{Name: "SITE", Value: "west"}), doctor.Fail, "projects no token"},
		"a dollar":               {mounted("$$(SITE)", "/tok/token", site), doctor.Fail, "projects no token"},
		"no variable":            {mounted("east$", "/tok/token", site), doctor.Fail, "projects no token"},
		"not closed":             {mounted("$(SITE", "/tok/token", site), doctor.Fail, "projects no token"},
		"of a Secret":            {mounted("$(SITE)", "/tok/token", secret), doctor.Warn, "subPath"},
		"not known":              {mounted("$(SITE)", "/tok/token"), doctor.Warn, "subPath"},
		"one of several":         {all(mounted("$(SITE)", "/tok/token", secret), otherAudience), doctor.Warn, "subPath"},
		"one of several, known":  {all(mounted("$(SITE)", "/tok/token", site), otherAudience), doctor.Warn, "subPath"},
		"the other one of them":  {all(mounted("$(SITE)", "/tok/token", corev1.EnvVar{Name: "SITE", Value: "west"}), otherAudience), doctor.Unknown, "another audience"},
		"none that has a token":  {all(mounted("$(SITE)", "/tok/token", secret), withoutTokens), doctor.Fail, "projects no token"},
		"the name of the pod":    {mounted("$(SITE)", "/tok/token", corev1.EnvVar{Name: "SITE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}), doctor.Fail, "projects no token"},
		"without subPathExpr":    {mounted("", "/tok/east/token"), doctor.Pass, "mounted"},
		"without, another place": {mounted("", "/tok/token"), doctor.Fail, "projects no token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "aws")
			withPod(tc.change)(w)
			if f := w.run().Of("pod"); f.Result != tc.want || !strings.Contains(f.Message, tc.says) {
				t.Errorf("%+v", f)
			}
		})
	}
}

func withoutTokens(_ *world, pod *corev1.Pod) {
	pod.Spec.Volumes[0].Projected.Sources = []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{}}}
}
