package identity_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
)

// withPod adds a pod as the webhook leaves it, changed.
func withPod(change func(w *environment, pod *corev1.Pod)) func(w *environment) {
	return func(w *environment) {
		env := []corev1.EnvVar{{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: "/var/run/token"},
			{Name: "AWS_ROLE_ARN", Value: roleARN},
			{Name: "AZURE_FEDERATED_TOKEN_FILE", Value: "/var/run/token"}, {Name: "AZURE_CLIENT_ID", Value: azureClient},
			{Name: "AZURE_TENANT_ID", Value: azureTenant}}
		w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "pod"},
			Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "c", Image: "i", Env: env}}}}
		w.config.Pod = client.ObjectKeyFromObject(w.pod)
		change(w, w.pod)
	}
}

// inPod has the program run in the pod itself.
func inPod(change func(w *environment)) func(w *environment) {
	return func(w *environment) {
		w.config.InPod, w.config.ServiceAccount = true, client.ObjectKey{}
		w.write(w.sign(nil))
		w.env = map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": w.tokenFile, "AWS_ROLE_ARN": roleARN,
			"AZURE_FEDERATED_TOKEN_FILE": w.tokenFile, "AZURE_CLIENT_ID": azureClient, "AZURE_TENANT_ID": azureTenant}
		w.config.Token = nil
		w.withoutCluster = true
		change(w)
	}
}

func podFaults() []fault {
	noEnv := func(_ *environment, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }
	return []fault{
		{"webhook has not changed the pod", "aws", withPod(noEnv), "pod", "IdentityNotConfigured", "webhook"},
		{"webhook has not changed the pod", "azure", withPod(noEnv), "pod", "IdentityNotConfigured", "webhook"},
		{"pod of an older annotation", "aws", withPod(func(_ *environment, pod *corev1.Pod) {
			pod.Spec.Containers[0].Env[1].Value = roleARN + "-old"
		}), "pod", "IdentityNotConfigured", "AWS_ROLE_ARN of pod"},
		{"pod of an older annotation", "azure", withPod(func(w *environment, _ *corev1.Pod) {
			const other = "22222222-2222-4333-8444-555555555555"
			w.account.Annotations[azure.ClientIDAnnotation] = other
		}), "pod", "IdentityNotConfigured", "AZURE_CLIENT_ID of pod"},
		{"pod of another ServiceAccount", "aws", withPod(func(_ *environment, pod *corev1.Pod) {
			pod.Spec.ServiceAccountName = "default"
		}), "pod", "IdentityNotConfigured", "another ServiceAccount"},
		{"pod does not exist", "aws", func(w *environment) {
			w.config.Pod = client.ObjectKey{Namespace: "tenant-a", Name: "missing"}
		}, "pod", "IdentityNotConfigured", "does not exist"},

		{"static keys in the spec", "aws", withPod(env("AWS_ACCESS_KEY_ID", "AKIA")), "pod", "IdentityNotConfigured",
			"hides"},
		{"a client secret in the spec", "azure", withPod(ref("AZURE_CLIENT_SECRET", false)), "pod", "IdentityNotConfigured",
			"hides"},
		{"another tenant in the spec", "azure", withPod(env("AZURE_TENANT_ID", "00000000-86f1-41af-91ab-2d7cd011db47")),
			"pod", "IdentityNotConfigured", "AZURE_TENANT_ID of pod"},
		{"an audience of Azure in the annotation", "aws", func(w *environment) {
			annotate(aws.AudienceAnnotation, azure.DefaultAudience)(w)
			w.config.Options = append(w.config.Options, auth.WithPolicy(auth.Policy{AllowAnyAudience: true})) // as wid doctor
		}, "exchange", "AudienceNotTrusted", "client ID"},
		{"static keys", "aws", inPod(func(w *environment) {
			w.env["AWS_ACCESS_KEY_ID"] = "AKIA"
		}), "pod", "IdentityNotConfigured", "hides"},
		{"client secret", "azure", inPod(func(w *environment) {
			w.env["AZURE_CLIENT_SECRET"] = "s"
		}), "pod", "IdentityNotConfigured", "hides"},
		{"nothing injected", "aws", inPod(func(w *environment) {
			w.env = map[string]string{}
		}), "pod", "IdentityNotConfigured", "is not set"},
		{"nothing injected", "azure", inPod(func(w *environment) {
			w.env = map[string]string{}
		}), "pod", "IdentityNotConfigured", "is not set"},
	}
}

// spec changes the pod that the webhook has left.
type spec func(w *environment, pod *corev1.Pod)

// env sets a variable of the first container.
func env(name, value string) spec {
	return func(_ *environment, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: name, Value: value})
	}
}

func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == v.Name })
	if v.Value != "" || v.ValueFrom != nil {
		c.Env = append(c.Env, v)
	}
}

// ref sets a variable of the first container to a key of a Secret.
func ref(name string, optional bool) spec {
	return func(_ *environment, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0],
			corev1.EnvVar{Name: name,
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", Optional: &optional}}})
	}
}

func all(changes ...spec) spec {
	return func(w *environment, pod *corev1.Pod) {
		for _, change := range changes {
			change(w, pod)
		}
	}
}
