package doctor_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// silent is an API server whose answer to everything is one error.
func (w *world) silent(err error) {
	w.config.RESTConfig = w.api()
	w.config.Client = interceptor.NewClient(w.issuer.Client(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err }})
}

// Whoever may not create tokens knows nothing of a pod, whose tokens the kubelet creates.
func TestPodOfWhoMayNotMint(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		want   doctor.Result
		remedy string
	}{
		"a pod": {withPod(func(*world, *corev1.Pod) {}), doctor.Unknown, "\nkubectl exec -n tenant-a pod -- wid doctor --provider aws"},
		"in the pod": {func(w *world) {
			w.config.InPod = true
			w.env = map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "x", "AWS_ROLE_ARN": roleARN}
		}, doctor.Unknown, "without --service-account"},
		"the pod's own rights": {func(w *world) { w.user.name = subject }, doctor.Unknown, "leave --service-account out"},
		"a controller":         {func(*world) {}, doctor.Fail, "\nkubectl create rolebinding wid-token -n tenant-a --role=wid-token --serviceaccount=system:controller"},
	} {
		w := newWorld(t, "aws")
		w.user.mayNot = []string{"serviceaccounts/token"}
		tc.change(w)
		report := w.run()
		f := report.Of("token-request")
		if f.Result != tc.want || !strings.Contains(f.Remedy, tc.remedy) || strings.Contains(f.Remedy, "create role") != (tc.want == doctor.Fail) {
			t.Errorf("%s: %+v", name, f)
		}
		if code := report.ExitCode(); tc.want == doctor.Unknown && code != doctor.ExitUncertain || report.Of("exchange").Result == doctor.Pass {
			t.Errorf("%s: %d\n%s", name, code, report)
		}
	}
}

// An API server that refuses the caller is no reason not to try a token that is in a file.
func TestRefusedByTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(w *world)
		want     doctor.Result
		exchange doctor.Result
		remedy   string
	}{
		"in the pod":    {func(w *world) { inPod(func(w *world) { w.withoutCluster = false })(w) }, doctor.Warn, doctor.Pass, "restart the pod"},
		"a token file":  {func(w *world) { w.write(w.sign(nil)) }, doctor.Warn, doctor.Skip, "log in again"}, // whose role nobody knows
		"to be created": {func(*world) {}, doctor.Fail, doctor.Skip, "log in again"},
		"by a plugin": {func(w *world) {
			w.config.RESTConfig = w.api()
			w.config.RESTConfig.ExecProvider = &clientcmdapi.ExecConfig{Command: "aws"}
		}, doctor.Fail, doctor.Skip, "log in again where aws takes its login from"},
		"generic, alone": {func(w *world) { w.config.InPod, w.config.ServiceAccount = true, client.ObjectKey{} }, doctor.Fail, doctor.Skip, "restart the pod"},
	} {
		provider := "aws"
		if strings.HasPrefix(name, "generic") {
			provider = "generic"
		}
		w := newWorld(t, provider)
		tc.change(w)
		given := w.config.RESTConfig
		w.silent(apierrors.NewUnauthorized("Unauthorized"))
		if given != nil {
			w.config.RESTConfig = given
		}
		report := w.run()
		f := report.Of("api-server")
		if f.Result != tc.want || f.Class != "K10" || !strings.Contains(f.Remedy, tc.remedy) || (tc.remedy != "restart the pod") != strings.Contains(f.Remedy, "log in") {
			t.Errorf("%s: %+v", name, f)
		}
		if f := report.Of("exchange"); f.Result != tc.exchange {
			t.Errorf("%s:\n%s", name, report)
		}
		for _, id := range []string{"service-account", "cluster-issuer", "token-review"} {
			if f := report.Of(id); f.Result == doctor.Pass || f.Result == doctor.Fail {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// mayNotRead denies the user every object.
func mayNotRead(w *world) {
	w.config.RESTConfig = w.api()
	w.config.Client = interceptor.NewClient(asUser(w.issuer, w.issuer.Client(w.account), w.user), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "app", nil)
		}})
}

// A pod that asks about its own ServiceAccount is not told to let it read itself.
func TestPodThatMayNotReadItsAccount(t *testing.T) {
	w := newWorld(t, "aws")
	w.user.name = subject
	mayNotRead(w)
	if f := w.run().Of("service-account"); f.Result != doctor.Unknown || !strings.HasPrefix(f.Remedy, "leave --service-account out") {
		t.Errorf("%+v", f)
	}
}

// Who has no right at all learns of both that it takes at once, and of no more than it takes.
func TestRightsAreShownTogether(t *testing.T) {
	const read = "kubectl create role wid-read -n tenant-a --verb=get --resource=serviceaccounts --resource-name=app\n" +
		"kubectl create rolebinding wid-read -n tenant-a --role=wid-read --user=engineer"
	const mint = "kubectl create role wid-token -n tenant-a --verb=create --resource=serviceaccounts/token --resource-name=app\n" +
		"kubectl create rolebinding wid-token -n tenant-a --role=wid-token --user=engineer"
	for name, tc := range map[string]struct {
		mayNot []string
		change func(w *world)
		both   bool
	}{
		"neither":         {[]string{"serviceaccounts/token"}, func(*world) {}, true},
		"may mint":        {nil, func(*world) {}, false},
		"neither, a pod":  {[]string{"serviceaccounts/token"}, func(w *world) { w.config.Pod = client.ObjectKey{Namespace: "tenant-a", Name: "pod"} }, false},
		"neither, a file": {[]string{"serviceaccounts/token"}, func(w *world) { w.write(w.sign(nil)) }, false},
	} {
		w := newWorld(t, "aws")
		w.user.name, w.user.mayNot = "engineer", tc.mayNot
		mayNotRead(w)
		tc.change(w)
		report := w.run()
		f := report.Of("service-account")
		if pod := report.Of("pod"); w.config.Pod.Name != "" && !strings.Contains(pod.Remedy, "kubectl create role wid-pod -n tenant-a --verb=get --resource=pods --resource-name=pod\n"+
			"kubectl create rolebinding wid-pod -n tenant-a --role=wid-pod --user=engineer") {
			t.Errorf("%s: %+v", name, pod)
		}
		if f.Result != doctor.Unknown || !strings.Contains(f.Remedy, read) || strings.Contains(f.Remedy, mint) != tc.both || strings.Contains(f.Remedy, "wid-token") != tc.both {
			t.Errorf("%s: %+v", name, f)
		}
		pasteable(t, f)
	}
}

// What keeps a caller from the API server has a cause and a remedy of its own.
func TestObstacles(t *testing.T) {
	asked := func(err error) error { return &url.Error{Op: "Post", URL: "https://api.example", Err: err} }
	for name, tc := range map[string]struct {
		err          error
		says, remedy string
	}{
		"a login that has expired":  {asked(errors.New("getting credentials: exec: executable /bin/plug failed with exit code 255")), "has failed", "log in again"},
		"a program that is missing": {asked(errors.New("getting credentials: exec: executable aws not found\n\nIt looks like")), "does not exist", "install it"},
		"a path that is missing":    {asked(errors.New("getting credentials: exec: fork/exec /x/plug: no such file or directory")), "does not exist", "install it"},
		"a program that says no":    {asked(errors.New("getting credentials: decoding stdout: x")), "does not work", "see what it says"},
		"another authority":         {asked(x509.UnknownAuthorityError{}), "not of the authority", "certificate-authority-data"},
		"another name":              {asked(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}), "for another name", "tls-server-name"},
		"an old certificate":        {asked(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}), "not valid now", "timedatectl"},
		"nobody there":              {asked(errNowhere), "no route to host", "see that the API server runs"},
	} {
		w := newWorld(t, "aws")
		w.silent(tc.err)
		report := w.run()
		f := report.Of("api-server")
		if f.Result != doctor.Unknown || f.Class != "" || !strings.Contains(f.Message, tc.says) || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(tc.err.Error(), "exec") && strings.Contains(f.Message, "no answer") {
			t.Errorf("%s: nobody was asked: %s", name, f.Message)
		}
		if other := report.Of("service-account"); other.Result != doctor.Unknown || other.Remedy != f.Remedy {
			t.Errorf("%s: %+v", name, other)
		}
		harmless(t, report)
	}
}

// The pod that was named says whose credentials are wanted. If it cannot be read, nobody else's are examined.
func TestServiceAccountOfThePod(t *testing.T) {
	w := newWorld(t, "aws")
	withPod(func(*world, *corev1.Pod) {})(w)
	w.config.ServiceAccount = client.ObjectKey{}
	report := w.run()
	if report.ServiceAccount != "tenant-a/app" {
		t.Errorf("%s", report)
	}
	for _, id := range []string{"source", "service-account", "pod", "token-request", "exchange"} {
		if f := report.Of(id); f.Result != doctor.Pass {
			t.Errorf("%+v", f)
		}
	}
	for name, change := range map[string]func(w *world){
		"forbidden":  func(w *world) { w.silent(apierrors.NewForbidden(corev1.Resource("pods"), "pod", nil)) },
		"no cluster": func(w *world) { w.withoutCluster = true },
		"missing":    func(w *world) { w.pod = nil },
	} {
		w := newWorld(t, "aws")
		withPod(func(*world, *corev1.Pod) {})(w)
		w.config.ServiceAccount = client.ObjectKey{}
		change(w)
		report := w.run()
		if f := report.Of("exchange"); f.Result != doctor.Skip || report.ExitCode() == doctor.ExitPass {
			t.Errorf("%s:\n%s", name, report)
		}
		if f := report.Of("pod"); f.Result == doctor.Pass || f.Result == doctor.Skip || name != "missing" && !strings.Contains(f.Remedy, "--service-account NAMESPACE/SERVICE_ACCOUNT") {
			t.Errorf("%s: %+v", name, f)
		}
		for _, f := range report.Findings {
			if f.Result == doctor.Fail && f.ID != "pod" {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// Annotations that nobody has looked at are not missing.
func TestAnnotationsThatNobodySaw(t *testing.T) {
	for provider, key := range map[string]string{"aws": "eks.amazonaws.com/role-arn", "azure": "azure.workload.identity/tenant-id",
		"gcp": "gcp.auth.fluxcd.io/workload-identity-provider"} {
		w := newWorld(t, provider)
		w.write(w.sign(nil))
		w.withoutCluster = true
		report := w.run()
		f := report.Of("identifiers")
		if f.Result != doctor.Unknown || !strings.Contains(f.Remedy, "--annotation "+key+"=") ||
			!strings.Contains(f.Remedy, "\nkubectl get serviceaccount -n tenant-a app -o jsonpath='{.metadata.annotations}'") {
			t.Errorf("%+v", f)
		}
		pasteable(t, f)
		if f := report.Of("exchange"); f.Result != doctor.Skip || f.Needs != 9 || report.ExitCode() != doctor.ExitUncertain {
			t.Errorf("%s", report)
		}
		w = newWorld(t, provider)
		w.write(w.sign(nil))
		w.withoutCluster, w.config.Annotations = true, map[string]string{"a": "b"} // all that there are, says the caller
		if f := w.run().Of("identifiers"); provider != "gcp" && f.Result != doctor.Fail {
			t.Errorf("%+v", f)
		}
	}
}

// A UserInfo that does not tell gives a placeholder, which no shell obeys.
func TestBindingOfNobody(t *testing.T) {
	w := newWorld(t, "aws")
	w.user.mayNot = []string{"serviceaccounts/token"}
	w.config.RESTConfig = w.api()
	w.config.Client = interceptor.NewClient(asUser(w.issuer, w.issuer.Client(w.account), w.user), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
				return apierrors.NewForbidden(authenticationv1.Resource("selfsubjectreviews"), "", nil)
			}
			return c.Create(ctx, obj, opts...)
		}})
	if f := w.run().Of("token-request"); f.Result != doctor.Fail || !strings.Contains(f.Remedy, "--user=USER_NAME") {
		t.Errorf("%+v", f)
	}
}
