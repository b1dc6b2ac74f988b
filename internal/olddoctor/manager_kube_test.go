package doctor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/kubetest"
)

// startManager runs one with the rights of a user, until the test ends.
func startManager(t *testing.T, cluster *kubetest.Cluster, user, namespace string, options ctrl.Options,
	rules ...rbacv1.PolicyRule) ctrl.Manager {
	t.Helper()
	options.Metrics, options.Logger = metricsserver.Options{BindAddress: "0"}, logr.Discard()
	mgr, err := ctrl.NewManager(cluster.User(t, user, namespace, rules...), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-mgr.Elected()
	return mgr
}

// The client of a manager, the one that each reconciler has, begins no watch and takes no right to list.
func TestClientsOfManagers(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app", Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"}, Spec: corev1.PodSpec{ServiceAccountName: "app",
			Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	} {
		if err := cluster.Client().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	cloud := newCloud(t)
	stranger := cluster.IssuerClient(t)
	cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), stranger, aws.DefaultAudience)
	cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + namespace + ":app"}})

	get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "serviceaccounts"}, Verbs: []string{"get"}}
	mint := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}
	cachesAll := ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}}
	for name, tc := range map[string]struct {
		options ctrl.Options
		// caches says that the manager was told to, and the doctor not how to read otherwise.
		reader, caches bool
		rules          []rbacv1.PolicyRule
		want           map[string]doctor.Result
		says           string // of the check of the ServiceAccount
	}{
		"as it is made": {ctrl.Options{}, false, false, []rbacv1.PolicyRule{get, mint},
			map[string]doctor.Result{"service-account": doctor.Pass, "pod": doctor.Fail, "exchange": doctor.Pass}, "annotated"},
		"without the right to read": {ctrl.Options{}, false, false, []rbacv1.PolicyRule{mint},
			map[string]doctor.Result{"service-account": doctor.Unknown, "pod": doctor.Unknown}, `cannot get resource "serviceaccounts"`},
		"that caches all, with a reader": {cachesAll, true, false, []rbacv1.PolicyRule{get, mint},
			map[string]doctor.Result{"service-account": doctor.Pass, "pod": doctor.Fail, "exchange": doctor.Pass}, "annotated"},
		"that caches all": {cachesAll, false, true, []rbacv1.PolicyRule{get, mint},
			map[string]doctor.Result{"service-account": doctor.Unknown, "pod": doctor.Unknown}, "cache could not be filled"},
	} {
		t.Run(name, func(t *testing.T) {
			user := "manages-" + strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			mgr := startManager(t, cluster, user, namespace, tc.options, tc.rules...)
			config := doctor.Config{Provider: &aws.Provider{}, Client: mgr.GetClient(), RESTConfig: mgr.GetConfig(), IssuerClient: stranger,
				ServiceAccount: client.ObjectKey{Namespace: namespace, Name: "app"}, Pod: client.ObjectKey{Namespace: namespace, Name: "pod"},
				Options: []auth.Option{auth.WithHTTPClient(cloud.Client()), auth.WithSTSRegion("eu-central-1")}}
			if tc.reader {
				config.Reader = mgr.GetAPIReader()
			}
			report := doctor.Run(t.Context(), config)
			for id, want := range tc.want {
				if f := report.Of(id); f.Result != want {
					t.Errorf("%s is not %s:\n%s", id, want, report)
				}
			}
			if f := report.Of("service-account"); !strings.Contains(f.Message, tc.says) {
				t.Errorf("%+v", f)
			}
			requests := cluster.Audit(t, user)
			if len(requests) == 0 {
				t.Error("nothing was asked")
			}
			for _, r := range requests {
				if !tc.caches && (r.Verb == "watch" || r.Verb == "list" && slices.Contains([]string{"pods", "serviceaccounts"}, r.Resource)) {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}
