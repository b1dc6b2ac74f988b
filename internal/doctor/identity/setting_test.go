package identity_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/authtest"
)

// An answer of Google Cloud with several causes comes with the command that reads the setting. Commands hold the names of the call.
func TestAnswersWithSeveralCausesNameTheSetting(t *testing.T) {
	const describe, policy = "gcloud iam workload-identity-pools providers describe " + poolProvider, "gcloud iam service-accounts get-iam-policy " + gcpEmail
	const update = "gcloud iam workload-identity-pools providers update-oidc " + poolProvider
	for name, tt := range map[string]struct {
		spoil       func(w *environment)
		show, grant string
	}{
		"no key": {func(w *environment) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.JWKS = []byte(`{"keys":[]}`) })
		}, describe, update + " --jwk-json-path="},
		"condition": {func(w *environment) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Condition = func(map[string]any) bool { return false } })
		}, describe, update + " --attribute-condition=CONDITION"},
		"issuer": {func(w *environment) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Issuer += "/" })
		}, describe, update + " --issuer-uri=https://issuer.example"},
		"no binding": {func(w *environment) { w.cloud.GCP().SetServiceAccount(gcpEmail, authtest.GCPServiceAccount{}) }, policy,
			"add-iam-policy-binding " + gcpEmail + " --role roles/iam.workloadIdentityUser --member " + principal},
		"provider off": {func(w *environment) {
			w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Disabled = true })
		}, describe, ""},
		"API": {answer("iamcredentials", "", 403, "PERMISSION_DENIED", "IAM Service Account Credentials API has not been used in project 1 before or it is disabled."),
			"gcloud services enable iamcredentials.googleapis.com --project 123456789012", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, "gcp")
			tt.spoil(w)
			w.config.ShowPolicy = true
			f := w.run().Worst()
			if f == nil || !slices.Contains(f.Remedy.Commands, tt.show) || tt.grant != "" && !strings.Contains(strings.Join(f.Remedy.Or.Commands, "\n"), tt.grant) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A remedy deletes only a pod that its owner replaces, and says before what is lost.
func TestRemedyDeletesNoPodWithoutOwner(t *testing.T) {
	owned := func(kind string) func(_ *environment, pod *corev1.Pod) {
		return func(_ *environment, pod *corev1.Pod) {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "own", UID: "u", Controller: &yes}}
		}
	}
	for name, tt := range map[string]struct {
		owner         func(w *environment, pod *corev1.Pod)
		says, command string
	}{
		"no owner":   {func(*environment, *corev1.Pod) {}, "create it again", ""},
		"ReplicaSet": {owned("ReplicaSet"), "lose its local data", "kubectl delete pod -n tenant-a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, "aws")
			withPod(all(env("AWS_ROLE_ARN", roleARN+"-old"), tt.owner))(w)
			f := w.run().Of("pod")
			if !strings.Contains(f.Remedy.Text, tt.says) || strings.Join(f.Remedy.Commands, "") != tt.command {
				t.Errorf("%+v", f.Remedy)
			}
		})
	}
}

// The API server's webhook decides in a dry run what a pod lacks.
func TestPodThatTheWebhookHasNotChanged(t *testing.T) {
	injects := []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/var/run/token"}}
	for name, tt := range map[string]struct {
		user            user
		message, remedy string
		causes          int
	}{
		"a copy is changed":     {user{name: "u", webhook: injects}, "is not set.", "changes a copy of the pod. No controller owns", 0},
		"a copy is not changed": {user{name: "u"}, "is not set, nor in a copy.", "recreate the pod", 3},
		"no right to try it":    {user{name: "u", mayNot: []string{"pods"}}, "is not set.", "recreate an old pod", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, "aws")
			withPod(func(_ *environment, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil })(w)
			w.user = tt.user
			f := w.run().Worst()
			if f == nil || f.Check != "pod" || !strings.HasSuffix(f.Message, tt.message) || !strings.Contains(f.Remedy.Text, tt.remedy) || len(f.Causes) != tt.causes {
				t.Errorf("%+v", f)
			}
		})
	}
}
