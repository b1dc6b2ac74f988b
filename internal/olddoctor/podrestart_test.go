package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func ownedBy(apiVersion, kind, name string) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: "u", Controller: &controller}
}

// Only a pod that something brings back is told to be deleted.
func TestRestartOfPods(t *testing.T) {
	deployment, rollout := ownedBy("apps/v1", "Deployment", "web"), ownedBy("argoproj.io/v1alpha1", "Rollout", "web")
	set := ownedBy("apps/v1", "ReplicaSet", "web-5f7c")
	for name, tc := range map[string]struct {
		owner *metav1.OwnerReference
		above *metav1.OwnerReference // of the ReplicaSet
		err   error                  // of reading the ReplicaSet
		want  string
	}{
		"none":                 {nil, nil, nil, "recreate the pod from its manifest"},
		"Deployment":           {&set, &deployment, nil, "\nkubectl rollout restart -n tenant-a deployment web"},
		"Deployment, unseen":   {&set, &deployment, errors.New("forbidden"), "\nrestart what owns the ReplicaSet web-5f7c"},
		"ReplicaSet":           {&set, nil, nil, "\nkubectl delete pod -n tenant-a pod"},
		"Rollout":              {&set, &rollout, nil, "\nrestart the pod by way of what owns its ReplicaSet, the Rollout web"},
		"StatefulSet":          {new(ownedBy("apps/v1", "StatefulSet", "db")), nil, nil, "\nkubectl rollout restart -n tenant-a statefulset db"},
		"DaemonSet":            {new(ownedBy("apps/v1", "DaemonSet", "agent")), nil, nil, "\nkubectl rollout restart -n tenant-a daemonset agent"},
		"another StatefulSet":  {new(ownedBy("apps.kruise.io/v1", "StatefulSet", "db")), nil, nil, "\nrestart the pod by way of its owner, the StatefulSet db"},
		"Job":                  {new(ownedBy("batch/v1", "Job", "once")), nil, nil, "\nrestart the pod by way of its owner, the Job once"},
		"hostile":              {new(ownedBy("x/v1", "$(touch owned)", "`touch owned`")), nil, nil, `the '$(touch owned)' '` + "`touch owned`'"},
		"hostile StatefulSet":  {new(ownedBy("apps/v1", "StatefulSet", "a;touch owned")), nil, nil, "statefulset 'a;touch owned'"},
		"ReplicationControler": {new(ownedBy("v1", "ReplicationController", "old")), nil, nil, "\nkubectl delete pod -n tenant-a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "aws")
			withPod(all(env("AWS_ROLE_ARN", roleARN+"-old"), func(_ *world, pod *corev1.Pod) {
				if tc.owner != nil {
					pod.OwnerReferences = []metav1.OwnerReference{*tc.owner}
				}
			}))(w)
			w.config.RESTConfig = w.api()
			w.config.Client = interceptor.NewClient(asUser(w.issuer, w.issuer.Client(w.account, w.pod), w.user), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					own, ok := obj.(*unstructured.Unstructured)
					if !ok || own.GetKind() != "ReplicaSet" {
						return c.Get(ctx, key, obj, opts...)
					}
					if own.GetAPIVersion() != "apps/v1" || key.Name != "web-5f7c" || key.Namespace != "tenant-a" {
						return errors.New("another ReplicaSet")
					}
					if tc.above != nil {
						own.SetOwnerReferences([]metav1.OwnerReference{*tc.above})
					}
					return tc.err
				}})
			report := w.run()
			f := report.Of("pod")
			if !strings.Contains(f.Message, "another identity") || !strings.Contains(f.Remedy, tc.want) {
				t.Errorf("%+v", f)
			}
			if strings.Contains(f.Remedy, "delete pod") != strings.Contains(tc.want, "delete pod") {
				t.Errorf("%s", f.Remedy)
			}
			pasteable(t, f)
			harmless(t, report)
		})
	}
}
