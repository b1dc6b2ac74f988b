package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/kubetest"
)

// podWorld is a pod of a real API server, whose tokens are in files as the kubelet would have written them, and whose
// environment is what the webhook would have put there.
type podWorld struct {
	t         *testing.T
	cluster   *kubetest.Cluster
	namespace string
	pod       *corev1.Pod
	env       map[string]string
	config    doctor.Config
}

// newPodWorld has the doctor run with the rights of the pod's own ServiceAccount.
func newPodWorld(t *testing.T) *podWorld {
	t.Helper()
	w := &podWorld{t: t, cluster: kubetest.Start(t), env: map[string]string{}}
	w.namespace = w.cluster.Namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app", Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}}
	w.create(account)
	const path = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
	w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pod"}, Spec: corev1.PodSpec{
		ServiceAccountName: "app",
		Containers: []corev1.Container{{Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "aws-iam-token", MountPath: path}},
			Env: []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: path + "/token"}, {Name: "AWS_ROLE_ARN", Value: roleARN}}}},
		Volumes: []corev1.Volume{{Name: "aws-iam-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: aws.DefaultAudience, Path: "token"}}}}}}},
	}}
	w.create(w.pod)
	w.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = w.token(aws.DefaultAudience)
	w.env["AWS_ROLE_ARN"] = roleARN

	own := rest.AnonymousClientConfig(w.cluster.Config())
	own.BearerTokenFile = w.token()
	c, err := client.New(own, client.Options{Scheme: w.cluster.Client().Scheme(), Mapper: w.cluster.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	cloud := newCloud(t)
	stranger := w.cluster.IssuerClient(t)
	cloud.AWS().AddOIDCProvider("123456789012", w.cluster.IssuerURL(), stranger, aws.DefaultAudience)
	cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: w.cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + w.namespace + ":app"}})
	w.config = doctor.Config{Provider: &aws.Provider{}, InPod: true, Client: c, RESTConfig: own, IssuerClient: stranger,
		Getenv:  func(name string) string { return w.env[name] },
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client()), auth.WithSTSRegion("eu-central-1")}}
	return w
}

func (w *podWorld) create(object client.Object) {
	w.t.Helper()
	if err := w.cluster.Client().Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// token writes one that is bound to the pod into a file, as the kubelet does.
func (w *podWorld) token(audiences ...string) string {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app"}}
	if err := w.cluster.Client().SubResource("token").Create(w.t.Context(), account, request); err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(request.Status.Token), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// mayRead gives the pod's own ServiceAccount the right to see itself and its pod.
func (w *podWorld) mayRead() {
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts"}, Verbs: []string{"get"}}}})
	w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: "app"}}})
}

// run waits until the API server acts on the rights, if there are any to wait for.
func (w *podWorld) run(done func(*doctor.Report) bool) *doctor.Report {
	w.t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		report := doctor.Run(w.t.Context(), w.config)
		if done(report) || time.Now().After(end) {
			return report
		}
	}
}

// In a pod of a real API server: with the rights that every ServiceAccount has, nothing is a failure; with the right to read,
// the pod that the token names is judged too.
func TestInPodOfRealCluster(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	report := w.run(func(r *doctor.Report) bool { return r.Of("exchange").Result == doctor.Pass })
	for _, f := range report.Findings {
		if f.Result == doctor.Fail || f.Result == doctor.Warn {
			t.Errorf("false alarm: %+v", f)
		}
	}
	for id, want := range map[string]doctor.Result{"source": doctor.Pass, "token-file": doctor.Pass, "audience": doctor.Pass, "exchange": doctor.Pass,
		"service-account": doctor.Unknown, "pod": doctor.Skip} {
		if f := report.Of(id); f.Result != want {
			t.Errorf("%+v", f)
		}
	}

	w.mayRead()
	report = w.run(func(r *doctor.Report) bool { // the rights may come while it runs
		return r.Of("service-account").Result == doctor.Pass && r.Of("pod").Result == doctor.Pass
	})
	for _, id := range []string{"service-account", "pod", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("%s", report)
		}
	}

	// The API server's record says that the annotation is newer than the pod.
	update(t, w.cluster, client.ObjectKey{Namespace: w.namespace, Name: "app"}, &corev1.ServiceAccount{}, func(sa *corev1.ServiceAccount) {
		sa.Annotations[aws.RoleARNAnnotation] = roleARN + "-new"
	})
	report = w.run(func(*doctor.Report) bool { return true })
	if f := report.Of("service-account"); f.Result != doctor.Warn || !strings.Contains(f.Message, "the environment of the pod says otherwise") {
		t.Errorf("%+v", f)
	}
	if f := report.Of("pod"); f.Result != doctor.Fail || !strings.Contains(f.Message, "another identity") {
		t.Errorf("%+v", f)
	}
	if f := report.Of("exchange"); f.Result != doctor.Pass {
		t.Errorf("%+v", f)
	}

	// A pod without the webhook, and one whose token is for the API server.
	file := w.env["AWS_WEB_IDENTITY_TOKEN_FILE"]
	delete(w.env, "AWS_WEB_IDENTITY_TOKEN_FILE")
	if f := w.run(func(*doctor.Report) bool { return true }).Worst(); f == nil || f.ID != "source" || f.Class != "A14" {
		t.Errorf("%+v", f)
	}
	w.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = w.token()
	if f := w.run(func(*doctor.Report) bool { return true }).Worst(); f == nil || f.ID != "audience" || f.Class != "A4" {
		t.Errorf("%+v", f)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = file
	if f := w.run(func(*doctor.Report) bool { return true }).Worst(); f == nil || f.ID != "token-file" {
		t.Errorf("%+v", f)
	}
}

// A StatefulSet's pod has the name of its predecessor. The token of that one is told from one of another cluster, and AWS is
// asked, which knows no UIDs.
func TestRecreatedInRealCluster(t *testing.T) {
	w := newPodWorld(t)
	w.mayRead()
	config := w.config
	config.Client, config.RESTConfig = w.cluster.Client(), w.cluster.Config() // who may have tokens reviewed
	recreate := func(object client.Object) {
		if err := w.cluster.Client().Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		object.SetUID("")
		object.SetResourceVersion("")
		w.create(object)
	}
	refused := func(says, remedy string) {
		t.Helper()
		end := time.Now().Add(2 * time.Minute)
		for {
			report := doctor.Run(t.Context(), config)
			f, exchange := report.Of("token-review"), report.Of("exchange")
			if f.Result == doctor.Fail && f.Class == "K6" && strings.Contains(f.Message, "refuses the token: "+says) && strings.Contains(f.Remedy, remedy) &&
				(exchange.Result == doctor.Pass || exchange.Needs == 14) {
				return
			}
			// The API server has the old pod until its own watch brings the new one, and remembers a token for ten seconds.
			if time.Now().After(end) {
				t.Fatalf("%+v\n%+v", f, exchange)
			}
		}
	}
	recreate(w.pod)
	refused("its pod was re-created since", "the kubelet writes a new token")
	w.env["AWS_WEB_IDENTITY_TOKEN_FILE"] = w.token(aws.DefaultAudience)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "app", Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}}
	recreate(account)
	refused("the ServiceAccount was re-created since", "restart the pod")
	if err := w.cluster.Client().Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	refused("the ServiceAccount was deleted", "create it again")
}
