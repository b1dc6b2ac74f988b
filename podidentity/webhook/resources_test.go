package webhook_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/workloadid/workloadid/podidentity/webhook"
)

const guaranteed = `{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"2000m","memory":"1024Mi"}}`

func TestGuaranteedPodGetsAGuaranteedSidecar(t *testing.T) {
	for name, row := range map[string]struct {
		spec string
		want bool
	}{
		"requests equal limits": {`"containers":[{"name":"a","resources":` + guaranteed + `}]`, true},
		"limits alone":          {`"containers":[{"name":"a","resources":{"limits":{"cpu":"2","memory":"1Gi"}}}]`, true},
		"lower request": {
			`"containers":[{"name":"a","resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1"}}}]`, false},
		"no memory limit": {`"containers":[{"name":"a","resources":{"limits":{"cpu":"2"}}}]`, false},
		"zero limit":      {`"containers":[{"name":"a","resources":{"limits":{"cpu":"0","memory":"1Gi"}}}]`, false},
		"init container without limits": {
			`"containers":[{"name":"a","resources":` + guaranteed + `}],"initContainers":[{"name":"i"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod, warnings := inject(t, newHandler(t, options(bind("b", "default"))), `{"spec":{`+row.spec+`}}`)
			r := pod.Spec.InitContainers[0].Resources
			equal := r.Requests.Cpu().Equal(*r.Limits.Cpu()) && r.Requests.Memory().Equal(*r.Limits.Memory())
			if equal != row.want || len(warnings) > 0 {
				t.Errorf("requests %v, limits %v, warnings %q", r.Requests, r.Limits, warnings)
			}
		})
	}
	t.Run("sidecars without a memory limit", func(t *testing.T) {
		o := options(bind("b", "default"))
		o.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}}
		_, warnings := inject(t, newHandler(t, o), `{"spec":{"containers":[{"name":"a","resources":`+guaranteed+`}]}}`)
		if len(warnings) != 1 || !strings.Contains(warnings[0], "Burstable") {
			t.Errorf("warnings %q", warnings)
		}
	})
}

func TestSidecarSharesResourcesOfThePod(t *testing.T) {
	for name, row := range map[string]struct {
		resources string
		want      []corev1.ResourceName // of the sidecar
	}{
		"both":           {guaranteed, nil},
		"requests alone": {`{"requests":{"cpu":"1","memory":"1Gi"}}`, nil},
		"memory alone":   {`{"limits":{"memory":"1Gi"}}`, []corev1.ResourceName{corev1.ResourceCPU}},
		"neither of them": {`{"limits":{"hugepages-2Mi":"2Mi"}}`,
			[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, _ := inject(t, newHandler(t, options(bind("b", "default"))),
				`{"spec":{"resources":`+row.resources+`,"containers":[{"name":"a"}]}}`)
			var got []corev1.ResourceName
			for resource := range pod.Spec.InitContainers[0].Resources.Requests {
				got = append(got, resource)
			}
			if slices.Sort(got); !slices.Equal(got, row.want) {
				t.Errorf("the sidecar requests %q", got)
			}
		})
	}
}

func TestWindowsByAffinity(t *testing.T) {
	expression := func(key, operator, values string) string {
		return `{"matchExpressions":[{"key":"` + key + `","operator":"` + operator + `","values":[` + values + `]}]}`
	}
	const key = "kubernetes.io/os"
	windows, linux := expression(key, "In", `"windows"`), expression(key, "In", `"linux"`)
	for name, row := range map[string]struct {
		terms   string
		allowed bool
	}{
		"In windows":              {windows, false},
		"NotIn linux":             {expression(key, "NotIn", `"linux"`), false},
		"old label":               {expression("beta.kubernetes.io/os", "In", `"windows"`), false},
		"every term":              {windows + "," + windows, false},
		"another term with Linux": {windows + "," + linux, true},
		"In linux and windows":    {expression(key, "In", `"linux","windows"`), true},
		"NotIn windows":           {expression(key, "NotIn", `"windows"`), true},
		"Exists":                  {expression(key, "Exists", ""), true},
		"another label":           {expression("zone", "In", `"windows"`), true},
		"no term":                 {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := admit(t, newHandler(t, options(bind("b", "default"))),
				`{"spec":{"containers":[{"name":"a"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`+row.terms+`]}}}}}`)
			if r.Allowed != row.allowed || !row.allowed && !strings.Contains(r.Result.Message, "Windows") {
				t.Errorf("allowed %t, %q", r.Allowed, r.Result.Message)
			}
		})
	}
}

func TestUnboundServiceAccountIsAWarning(t *testing.T) {
	h := newHandler(t, options(bind("b", "default")))
	r := admit(t, h, `{"spec":{"serviceAccountName":"defualt","containers":[{"name":"a"}]}}`)
	if !r.Allowed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `"defualt"`) {
		t.Errorf("allowed %t, warnings %q", r.Allowed, r.Warnings)
	}
	for name, metadata := range map[string]string{
		"opted out":           `{"annotations":{"` + webhook.AnnotationInject + `":"false"}}`,
		"pod of a DaemonSet":  `{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","uid":"u","controller":true}]}`,
		"static pod's mirror": `{"annotations":{"kubernetes.io/config.mirror":"hash"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := admit(t, h, `{"metadata":`+metadata+`,"spec":{"serviceAccountName":"defualt","containers":[{"name":"a"}]}}`)
			if !r.Allowed || len(r.Warnings) > 0 {
				t.Errorf("allowed %t, warnings %q", r.Allowed, r.Warnings)
			}
		})
	}
}
