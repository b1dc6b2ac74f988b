package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil" // the one of the API server
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

const (
	audience = "iam.aws.k8s.io"
	fullURI  = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	secret   = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
	relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
)

func TestInjection(t *testing.T) {
	h := newHandler(t, options(bind("b", "app")))
	pod, warnings := inject(t, h, `{"metadata":{"generateName":"app-"},"spec":{"serviceAccountName":"app",
		"initContainers":[{"name":"init"}],"containers":[{"name":"one"},{"name":"two","env":[{"name":"A","value":"$(B)"}]}],
		"volumes":[{"name":"data","emptyDir":{}}]}}`)
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	names := []string{pod.Spec.InitContainers[0].Name, pod.Spec.InitContainers[1].Name}
	if !slices.Equal(names, []string{podidentity.ProxyContainer, "init"}) {
		t.Errorf("the init containers are %q", names)
	}
	sidecar := pod.Spec.InitContainers[0]
	switch {
	case sidecar.RestartPolicy == nil || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways:
		t.Error("the sidecar would end before the application starts")
	case sidecar.StartupProbe == nil || sidecar.StartupProbe.Exec == nil ||
		!slices.Equal(sidecar.StartupProbe.Exec.Command,
			[]string{"/ko-app/iam-credentials-pod", "proxy", "--check", "--listen=127.0.0.1:2020"}):
		t.Errorf("the startup probe is %+v", sidecar.StartupProbe)
	case !slices.Equal(sidecar.Args,
		[]string{"proxy", "--server=https://iam-credentials-provider.iam-system.svc:8443",
			"--token-file=/var/run/secrets/iam.aws.k8s.io/token", "--listen=127.0.0.1:2020"}):
		t.Errorf("the arguments are %q", sidecar.Args)
	case env(sidecar)["WORKLOADID_SERVER_CA"] != "PEM" || len(env(sidecar)[secret]) != 26:
		t.Error("the sidecar lacks the CA or the secret")
	case len(sidecar.VolumeMounts) != 1 || sidecar.VolumeMounts[0].Name != podidentity.TokenVolume ||
		!sidecar.VolumeMounts[0].ReadOnly:
		t.Errorf("the mounts are %+v", sidecar.VolumeMounts)
	}
	for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers[1]) {
		if e := env(c); e[fullURI] != "http://127.0.0.1:2020/v1/credentials" || e[secret] != env(sidecar)[secret] {
			t.Errorf("container %q has %v", c.Name, e)
		}
	}
	if c := pod.Spec.Containers[1]; c.Env[0] != (corev1.EnvVar{Name: "A", Value: "$(B)"}) {
		t.Errorf("the application's variables are %v", c.Env)
	}
	if len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[0].Name != "data" ||
		pod.Spec.Volumes[1].Projected.Sources[0].ServiceAccountToken.Audience != audience {
		t.Errorf("the volumes are %+v", pod.Spec.Volumes)
	}
}

func TestSecretsOfPodsDiffer(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	one, _ := inject(t, h, `{"spec":{"containers":[{"name":"a"}]}}`)
	two, _ := inject(t, h, `{"spec":{"containers":[{"name":"a"}]}}`)
	if env(one.Spec.Containers[0])[secret] == env(two.Spec.Containers[0])[secret] {
		t.Error("two pods have one secret")
	}
}

// Absent, null, empty and filled arrays get the same injection.
func TestInjectionOfEveryForm(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	for name, pod := range map[string]string{
		"without serviceAccountName": `{"spec":{"containers":[{"name":"a"}]}}`,
		"null arrays":                `{"metadata":{"annotations":null},"spec":{"containers":[{"name":"a","env":null}],"initContainers":null,"volumes":null}}`,
		"empty arrays":               `{"spec":{"containers":[{"name":"a","env":[]}],"initContainers":[],"volumes":[]}}`,
		"filled arrays":              `{"spec":{"containers":[{"name":"a","env":[{"name":"x"}]}],"initContainers":[{"name":"i","env":[]}],"volumes":[{"name":"v"}]}}`,
		"null elements":              `{"spec":{"containers":[{"name":"a","env":[null]}],"volumes":[null]}}`,
		"annotation true":            `{"metadata":{"annotations":{"iam.aws.k8s.io/inject":"true"}},"spec":{"containers":[{"name":"a"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			pod, _ := inject(t, h, pod)
			if pod.Spec.InitContainers[0].Name != podidentity.ProxyContainer || env(pod.Spec.Containers[0])[fullURI] == "" ||
				pod.Spec.Volumes[len(pod.Spec.Volumes)-1].Name != podidentity.TokenVolume {
				t.Errorf("got %+v", pod.Spec)
			}
		})
	}
}

// Unknown fields survive byte for byte, also numbers that no float64 holds.
func TestUnknownFieldsAndLargeNumbersSurvive(t *testing.T) {
	const unknown = `{"z":9223372036854775807,"a":[18446744073709551615,1e400,1.0,-0],"text":"\u003c\u0041é"}`
	h := newHandler(t, options(bind("b", "default")))
	pod := `{"metadata":{"name":"p","future":` + unknown + `},"spec":{"future":` + unknown +
		`,"terminationGracePeriodSeconds":9007199254740993,` +
		`"tolerations":[{"tolerationSeconds":9223372036854775807,"future":` + unknown +
		`}],"initContainers":[{"name":"i","future":` + unknown + `}],` +
		`"containers":[{"name":"a","future":` + unknown + `,"env":[{"name":"x","future":` + unknown +
		`}]}],"volumes":[{"name":"v","future":` + unknown + `}]},"future":` + unknown + `}`
	response := admit(t, h, pod)
	patched := apply(t, pod, response)
	if got, want := strings.Count(patched, unknown), strings.Count(pod, unknown); got != want {
		t.Errorf("%d of %d unknown fields survive: %s", got, want, patched)
	}
	for _, number := range []string{`"terminationGracePeriodSeconds":9007199254740993`,
		`"tolerationSeconds":9223372036854775807`} {
		if !strings.Contains(patched, number) {
			t.Errorf("%s is lost", number)
		}
	}
	var patch []struct{ Op, Path string }
	if err := json.Unmarshal(response.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	for _, p := range patch {
		if p.Op != "add" {
			t.Errorf("the patch has %+v", p)
		}
	}
}

func TestContainerThatIsAddedLaterGetsTheSameSecret(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	const pod = `{"spec":{"containers":[{"name":"a"}]}}`
	first := apply(t, pod, admit(t, h, pod))
	later := apply(t, first,
		&admissionv1.AdmissionResponse{Patch: []byte(`[{"op":"add","path":"/spec/containers/0","value":{"name":"mesh"}},
		{"op":"replace","path":"/spec/initContainers/0/image","value":"mirror.example/pod:1"},
		{"op":"add","path":"/spec/initContainers/0","value":{"name":"mesh-init"}}]`)})
	got, _ := inject(t, h, later)
	want := env(got.Spec.Containers[1])[secret]
	if want == "" || env(got.Spec.Containers[0])[secret] != want || env(got.Spec.InitContainers[0])[secret] != want ||
		len(got.Spec.InitContainers) != 2 {
		t.Errorf("got %+v", got.Spec)
	}
}

func TestRedirect(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	pod, warnings := inject(t, h,
		`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":"true"}},"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]}}`)
	redirect, sidecar := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1]
	if redirect.Name != podidentity.RedirectContainer ||
		!slices.Equal(redirect.SecurityContext.Capabilities.Add, []corev1.Capability{"NET_ADMIN"}) ||
		redirect.RestartPolicy != nil {
		t.Errorf("the first init container is %+v", redirect)
	}
	if sidecar.Name != podidentity.ProxyContainer || !slices.Contains(sidecar.Args, "--listen=169.254.170.2:80") ||
		pod.Spec.InitContainers[2].Name != "i" {
		t.Errorf("the second init container is %+v", sidecar)
	}
	e := env(pod.Spec.Containers[0])
	if e[relative] != "/v1/credentials/"+env(sidecar)[secret] || len(e) != 1 || len(warnings) > 0 {
		t.Errorf("the container has %v, with the warnings %q", e, warnings)
	}
}

func TestContainersOfTheBindingAndOptOut(t *testing.T) {
	const two = `"spec":{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}]}}`
	for name, test := range map[string]struct {
		only []string
		pod  string
		want []string
		warn string
	}{
		"all":                       {nil, `{` + two, []string{"a", "b", "i"}, ""},
		"containers of the binding": {[]string{"b", "i"}, `{` + two, []string{"b", "i"}, ""},
		"opt-out of containers": {nil, `{"metadata":{"annotations":{"iam.aws.k8s.io/skip-containers":"a, i"}},` + two,
			[]string{"b"}, ""},
		"opt-out wins": {[]string{"a", "b"},
			`{"metadata":{"annotations":{"iam.aws.k8s.io/skip-containers":"a"}},` + two, []string{"b"}, ""},
		"binding names no container": {[]string{"c"}, `{` + two, nil, "no container of the pod gets"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, warnings := inject(t, newHandler(t, options(bind("b", "default", test.only...))), test.pod)
			var got []string
			for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers[1:]...) {
				if env(c)[fullURI] != "" {
					got = append(got, c.Name)
				}
			}
			if !slices.Equal(got, test.want) || !strings.Contains(strings.Join(warnings, "\n"), test.warn) ||
				test.warn == "" && warnings != nil {
				t.Errorf("injected %q, with the warnings %q", got, warnings)
			}
		})
	}
}

func TestNothingToDo(t *testing.T) {
	const pod = `{"spec":{"serviceAccountName":"app","hostNetwork":true,"containers":[{"name":"a"}]}}`
	for name, test := range map[string]struct {
		pod    string
		change func(*admissionv1.AdmissionRequest)
	}{
		"opt-out of the pod":     {`{"metadata":{"annotations":{"iam.aws.k8s.io/inject":"false"}},` + pod[1:], nil},
		"mirror pod":             {`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},` + pod[1:], nil},
		"ServiceAccount without": {strings.Replace(pod, "app", "other", 1), nil},
		"binding of another namespace": {strings.Replace(pod, "{", `{"metadata":{"namespace":"team"},`, 1),
			func(r *admissionv1.AdmissionRequest) { r.Namespace = "other" }},
		"pods/ephemeralcontainers": {pod, func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.SubResource = admissionv1.Update, "ephemeralcontainers"
		}},
		"pods/resize": {pod, func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.SubResource = admissionv1.Update, "resize"
		}},
		"pods/binding":                  {pod, func(r *admissionv1.AdmissionRequest) { r.SubResource = "binding" }},
		"update":                        {pod, func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }},
		"delete, which has no object":   {`null`, func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }},
		"another resource of that name": {pod, func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "deployments" }},
	} {
		t.Run(name, func(t *testing.T) {
			response := post(t, newHandler(t, options(bind("b", "app"))), "application/json", review(t, test.change, test.pod))
			if !response.Allowed || len(response.Patch) > 0 {
				t.Errorf("got %+v", response)
			}
		})
	}
}

func TestDryRunIsInjectedToo(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	response := post(t, h, "application/json", review(t, func(r *admissionv1.AdmissionRequest) {
		r.DryRun = new(true)
	}, `{"spec":{"containers":[{"name":"a"}]}}`))
	if !response.Allowed || len(response.Patch) == 0 {
		t.Errorf("got %+v", response)
	}
}

func TestDenials(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	const sidecar = `{"name":"iam-credentials-proxy","command":["/ko-app/iam-credentials-pod"],"args":["proxy","--server=https://iam-credentials-provider.iam-system.svc:8443",` +
		`"--token-file=/var/run/secrets/iam.aws.k8s.io/token","--listen=127.0.0.1:2020"],"restartPolicy":"Always","startupProbe":{},"env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN","value":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}]}`
	spec := func(fields string) string { return `{"spec":{"containers":[{"name":"a"}],` + fields + `}}` }
	if response := admit(t, h, spec(`"initContainers":[`+sidecar+`]`)); !response.Allowed {
		t.Fatalf("the sidecar of the cases below is denied: %s", response.Result.Message)
	}
	changed := func(old, by string) string {
		if !strings.Contains(sidecar, old) {
			t.Fatalf("no %q to change", old)
		}
		return spec(`"initContainers":[` + strings.Replace(sidecar, old, by, 1) + `]`)
	}
	for name, test := range map[string]struct{ pod, want string }{
		"hostNetwork":                      {spec(`"hostNetwork":true`), "hostNetwork"},
		"Windows":                          {spec(`"os":{"name":"windows"}`), "Windows"},
		"Windows by its node selector":     {spec(`"nodeSelector":{"kubernetes.io/os":"windows"}`), "Windows"},
		"Windows by its old node selector": {spec(`"nodeSelector":{"beta.kubernetes.io/os":"windows"}`), "Windows"},
		"own container": {`{"spec":{"containers":[{"name":"iam-credentials-proxy"}]}}`,
			`container "iam-credentials-proxy"`},
		"own init container": {spec(`"initContainers":[{"name":"iam-credentials-proxy"}]`),
			`init container "iam-credentials-proxy"`},
		"own container with the redirect name": {`{"spec":{"containers":[{"name":"iam-credentials-redirect"}]}}`,
			`container "iam-credentials-redirect"`},
		"own init container with that name": {spec(`"initContainers":[{"name":"iam-credentials-redirect"}]`),
			`init container "iam-credentials-redirect"`},
		"sidecar with other arguments":    {changed("--listen=127", "--listen=128"), "init container"},
		"sidecar with another program":    {changed(`"/ko-app/iam-credentials-pod"`, `"/bin/sh"`), "init container"},
		"sidecar without restartPolicy":   {changed(`"restartPolicy":"Always",`, ``), "init container"},
		"sidecar without a probe":         {changed(`"startupProbe":{},`, ``), "init container"},
		"sidecar without a secret":        {changed(`ABCDEFGHIJKLMNOPQRSTUVWXYZ`, ``), "init container"},
		"sidecar with a guessable secret": {changed(`ABCDEFGHIJKLMNOPQRSTUVWXYZ`, `A`), "init container"},
		"sidecar with a long secret": {changed(`ABCDEFGHIJKLMNOPQRSTUVWXYZ`, strings.Repeat("A", 1<<20)),
			"init container"},
		"sidecar without variables": {changed(`,"env":`, `,"x":`), "init container"},
		"sidecar of the default mode": {`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":"true"}},` +
			spec(`"initContainers":[` + sidecar + `]`)[1:], "init container"},
		"redirect without a sidecar": {`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":"true"}},` +
			spec(
				`"initContainers":[{"name":"iam-credentials-redirect","command":["/ko-app/iam-credentials-pod"],"args":["redirect"]},{"name":"iam-credentials-redirect","command":["/ko-app/iam-credentials-pod"],"args":["redirect"]}]`)[1:], "init container"},
		"own volume": {spec(`"volumes":[{"name":"iam-credentials-token","emptyDir":{}}]`),
			`volume "iam-credentials-token"`},
		"token volume of another audience": {
			spec(
				`"volumes":[{"name":"iam-credentials-token","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]`),
			`volume`},
		"token volume with another path": {
			spec(
				`"volumes":[{"name":"iam-credentials-token","projected":{"sources":[{"serviceAccountToken":{"path":"x","audience":"iam.aws.k8s.io"}}]}}]`), `volume`},
		"token volume with another source too": {
			spec(
				`"volumes":[{"name":"iam-credentials-token","projected":{"sources":[{"serviceAccountToken":{"path":"token","audience":"iam.aws.k8s.io"}},{}]}}]`), `volume`},
		"too many containers": {
			spec(`"initContainers":[{"name":"i"}` + strings.Repeat(`,{"name":"i"}`, 500) + `]`), "more than 500 elements"},
		"too many volumes": {spec(`"volumes":[{}` + strings.Repeat(`,null`, 500) + `]`),
			"more than 500 elements"},
		"no containers":                 {`{"spec":{}}`, "no container"},
		"container without a name":      {`{"spec":{"containers":[null]}}`, "without a name"},
		"init container without a name": {spec(`"initContainers":[null]`), "without a name"},
		"nothing at all":                {`{}`, "no container"},
	} {
		t.Run(name, func(t *testing.T) {
			response := admit(t, h, test.pod)
			if response.Allowed || response.Result.Code != http.StatusForbidden ||
				!strings.Contains(response.Result.Message, test.want) || len(response.Result.Message) > 1000 {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}

func TestWithoutCA(t *testing.T) {
	o := options(bind("b", "default"))
	o.CA = func() []byte { return nil }
	if response := admit(t, newHandler(t, o), `{"spec":{"containers":[{"name":"a"}]}}`); response.Allowed ||
		response.Result.Code != http.StatusInternalServerError {
		t.Errorf("got %+v", response.Result)
	}
}

func TestWarnings(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
		"AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", relative} {
		t.Run(name, func(t *testing.T) {
			pod, warnings := inject(t, h, `{"spec":{"containers":[{"name":"a","env":[{"name":"`+name+`","value":"hush"}]}]}}`)
			if len(warnings) != 1 || !strings.Contains(warnings[0], `container "a" sets `+name+`, which`) ||
				strings.Contains(warnings[0], "hush") {
				t.Errorf("got %q", warnings)
			}
			if env(pod.Spec.Containers[0])[fullURI] == "" {
				t.Error("the container is not injected")
			}
		})
	}
	for _, name := range []string{fullURI, secret} {
		t.Run("own "+name, func(t *testing.T) {
			pod, warnings := inject(t, h,
				`{"spec":{"containers":[{"name":"a","env":[{"name":"`+name+`","valueFrom":{"fieldRef":{"fieldPath":"x"}}}]}]}}`)
			if len(warnings) != 1 || !strings.Contains(warnings[0], name+" itself") || len(pod.Spec.Containers[0].Env) != 1 {
				t.Errorf("got %q and %v", warnings, pod.Spec.Containers[0].Env)
			}
		})
	}
}

// The kubelet takes the last of two variables of one name.
func TestVariableThatIsSetTwice(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	_, warnings := inject(t, h,
		`{"spec":{"containers":[{"name":"a","env":[{"name":"`+fullURI+
			`","value":"http://127.0.0.1:2020/v1/credentials"},{"name":"`+fullURI+`","value":"http://127.0.0.1:1"}]}]}}`)
	if len(warnings) != 1 || !strings.Contains(warnings[0], fullURI+" itself") {
		t.Errorf("got %q", warnings)
	}
}

// The author of a pod cannot make the answer long.
func TestAnswersAreBounded(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	long := strings.Repeat("é", 100_000)
	var containers []string
	for i := range 400 {
		containers = append(containers,
			fmt.Sprintf(`{"name":"%d%s","env":[{"name":"AWS_PROFILE"},{"name":"AWS_ACCESS_KEY_ID"}]}`, i, long[:1000]))
	}
	for name, pod := range map[string]string{
		"many warnings": `{"spec":{"containers":[` + strings.Join(containers, ",") + `]}}`,
		"long name":     `{"spec":{"containers":[{"name":"` + long + `","env":[{"name":"AWS_PROFILE"}]}]}}`,
		"long annotation": `{"metadata":{"annotations":{"iam.aws.k8s.io/skip-containers":"` +
			strings.Repeat("a,", 500_000) + `"}},"spec":{"containers":[` + strings.Join(containers, ",") + `]}}`,
		"long number":         `{"spec":{"activeDeadlineSeconds":` + strings.Repeat("1", 1_000_000) + `}}`,
		"long quantity":       `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"` + long + `"}}}]}}`,
		"long ServiceAccount": `{"spec":{"serviceAccountName":"` + long + `","containers":[{"name":"a"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			response := admit(t, h, pod)
			size := len(response.Result.Message)
			for _, w := range response.Warnings {
				size += len(w)
			}
			if size > 5000 || len(response.Patch) > 300_000 || len(response.Warnings) > 10 {
				t.Errorf("%d bytes of text, a patch of %d bytes", size, len(response.Patch))
			}
		})
	}
}

func TestMalformedReviews(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	good := review(t, nil, `{"spec":{"containers":[{"name":"a"}]}}`)
	for name, test := range map[string]struct {
		contentType string
		body        []byte
		code        int32
	}{
		"no body":              {"application/json", nil, http.StatusBadRequest},
		"another content type": {"text/plain", good, http.StatusBadRequest},
		"no JSON":              {"application/json", []byte(`{"`), http.StatusBadRequest},
		"another kind":         {"application/json", []byte(`{"apiVersion":"v1","kind":"Pod"}`), http.StatusOK},
		"an array":             {"application/json", []byte(`[]`), http.StatusBadRequest},
		"a pod that is no pod": {"application/json", review(t, nil, `{"spec":[]}`), http.StatusBadRequest},
		"a pod that is a text": {"application/json", review(t, nil, `"x"`), http.StatusBadRequest},
		"10 MB": {"application/json", review(t, nil, `{"spec":"`+strings.Repeat("x", 10<<20)+`"}`),
			http.StatusBadRequest},
		"10 MB of brackets": {"application/json", bytes.Repeat([]byte(`[`), 10<<20), http.StatusBadRequest},
		"many brackets":     {"application/json", bytes.Repeat([]byte(`[`), 1<<20), http.StatusBadRequest},
		"brackets in the pod": {"application/json", review(t, nil, strings.Repeat(`[`, 5000)+strings.Repeat(`]`, 5000)),
			http.StatusBadRequest},
		"no request": {"application/json", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`),
			http.StatusOK},
		"a null request": {"application/json",
			[]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			response := post(t, h, test.contentType, test.body)
			if response.Result.Code != test.code || response.Allowed != (test.code == http.StatusOK) ||
				len(response.Patch) > 0 || len(response.Result.Message) > 1000 {
				t.Errorf("got %+v", response.Result)
			}
		})
	}
}

// The sidecar gets a CPU limit where all containers of the pod have one, as a
// quota asks for.
func TestResourcesOfTheSidecar(t *testing.T) {
	own := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"),
			corev1.ResourceCPU: resource.MustParse("1")}}
	const limited = `{"name":"app","image":"i","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}`
	for name, tc := range map[string]struct {
		containers, inits string
		resources         corev1.ResourceRequirements
		cpu, memory       string // limits, "0" for none
	}{
		"no limits":               {`{"name":"app","image":"i"}`, "", corev1.ResourceRequirements{}, "0", "48Mi"},
		"one of two":              {limited + `,{"name":"b","image":"i"}`, "", corev1.ResourceRequirements{}, "0", "48Mi"},
		"init container has none": {limited, `{"name":"i","image":"i"}`, corev1.ResourceRequirements{}, "0", "48Mi"},
		"null": {`{"name":"app","image":"i","resources":{"limits":{"cpu":null}}}`, "",
			corev1.ResourceRequirements{}, "0", "48Mi"},
		"all": {limited, "", corev1.ResourceRequirements{}, "100m", "48Mi"},
		"number": {`{"name":"app","image":"i","resources":{"limits":{"cpu":2}}}`, "",
			corev1.ResourceRequirements{}, "100m", "48Mi"},
		"options have a CPU limit":  {`{"name":"app","image":"i"}`, "", own, "1", "64Mi"},
		"options win over the rule": {limited, "", own, "1", "64Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(bind("app", "app"))
			o.Resources = tc.resources
			pod, _ := inject(t, newHandler(t, o),
				`{"spec":{"serviceAccountName":"app","containers":[`+tc.containers+`],"initContainers":[`+tc.inits+`]}}`)
			i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
				return c.Name == podidentity.ProxyContainer
			})
			if got := pod.Spec.InitContainers[i].Resources.Limits; got.Cpu().String() != tc.cpu ||
				got.Memory().String() != tc.memory {
				t.Errorf("limits %v", got)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*webhook.Options){
		"no cache":                 func(o *webhook.Options) { o.Bindings = nil },
		"no live reader":           func(o *webhook.Options) { o.Live = nil },
		"no image":                 func(o *webhook.Options) { o.Image = "" },
		"no audience":              func(o *webhook.Options) { o.Audience = "" },
		"no CA":                    func(o *webhook.Options) { o.CA = nil },
		"no server":                func(o *webhook.Options) { o.Server = "" },
		"server without TLS":       func(o *webhook.Options) { o.Server = "http://a:1" },
		"server with a path":       func(o *webhook.Options) { o.Server = "https://a:1/x" },
		"server without a host":    func(o *webhook.Options) { o.Server = "https://:1" },
		"privileged port":          func(o *webhook.Options) { o.Port = 80 },
		"port that does not exist": func(o *webhook.Options) { o.Port = 65536 },
		"request over the limit": func(o *webhook.Options) {
			o.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")}}
		},
		"CPU request over the CPU limit": func(o *webhook.Options) {
			o.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}}
		},
		"negative CPU limit": func(o *webhook.Options) { o.CPULimit = resource.MustParse("-1") },
		"metric that is taken": func(o *webhook.Options) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "podidentity_webhook_pods_total"}))
			o.Registerer = registry
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			change(&o)
			if _, err := webhook.New(o); err == nil {
				t.Error("New takes it")
			}
		})
	}
}

const resultsHelp = "# HELP podidentity_webhook_pods_total Requests for the admission of pods, by result: injected, unchanged, unbound, skipped, denied, busy or error.\n# TYPE podidentity_webhook_pods_total counter\n"

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := options(bind("b", "app"))
	o.Registerer = registry
	h := newHandler(t, o)
	inject(t, h, `{"spec":{"serviceAccountName":"app","containers":[{"name":"a"}]}}`) // and unchanged
	admit(t, h, `{"spec":{"containers":[{"name":"a"}]}}`)
	admit(t, h, `{"metadata":{"annotations":{"iam.aws.k8s.io/inject":"false"}}}`)
	admit(t, h, `{"spec":{"serviceAccountName":"app","hostNetwork":true}}`)
	admit(t, h, `[]`)
	want := resultsHelp
	for _, result := range []string{"denied", "error", "injected", "skipped", "unbound", "unchanged"} {
		want += `podidentity_webhook_pods_total{result="` + result + "\"} 1\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "podidentity_webhook_pods_total"); err != nil {
		t.Error(err)
	}
}

func BenchmarkInjection(b *testing.B) {
	items := make([]v1alpha1.IAMBinding, 100)
	for i := range items {
		items[i] = bind(fmt.Sprint(i), fmt.Sprint(i))
	}
	h := newHandler(b, options(append(items, bind("b", "default"))...))
	body := review(b, nil,
		`{"metadata":{"generateName":"app-","labels":{"app":"x"}},"spec":{"containers":[{"name":"a","image":"x","env":[{"name":"A","value":"B"}],"ports":[{"containerPort":8080}]},{"name":"b"}],"initContainers":[{"name":"i"}],"volumes":[{"name":"v","emptyDir":{}}]}}`)
	for b.Loop() {
		post(b, h, "application/json", body)
	}
}
