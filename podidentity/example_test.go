package podidentity_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/proxy"
	"github.com/workloadid/workloadid/podidentity/server"
)

// A program with two commands: the sidecar of each pod, and the server with the webhook.
func Example() {
	ctx := ctrl.SetupSignalHandler()
	if len(os.Args) == 2 && os.Args[1] == "sidecar" {
		fmt.Println(sidecar(ctx))
		return
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":8443")
	if err != nil {
		fmt.Println(err)
		return
	}
	https := ctrlwebhook.NewServer(ctrlwebhook.Options{CertDir: "/certs"})
	fmt.Println(provide(ctx, ctrl.GetConfigOrDie(), listener, https, "/certs"))
}

// bind writes the objects, and returns the trust policy of the role.
func bind(ctx context.Context, c client.Client) ([]byte, error) {
	allowed := &v1alpha1.IAMRoleAllowList{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
		Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{{
			Namespaces: []string{"team-a"},
			Roles:      []string{"arn:aws:iam::123456789012:role/team-a/*"},
		}}},
	}
	binding := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/team-a/reporting"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"},
		},
	}
	policy, err := server.TrustPolicy("prod", "arn:aws:iam::123456789012:role/pod-identity", binding)
	if err != nil {
		return nil, err
	}
	return policy, errors.Join(c.Create(ctx, allowed), c.Create(ctx, binding))
}

func sidecar(ctx context.Context) error {
	p, err := proxy.New(proxy.Options{
		Server:    "https://pod-identity.iam-system.svc:8443",
		CA:        []byte(os.Getenv("WORKLOADID_SERVER_CA")),
		TokenFile: "/var/run/secrets/iam.aws.k8s.io/token",
		Secret:    os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
	})
	if err != nil {
		return err
	}
	listeners, err := proxy.Listen(ctx, "127.0.0.1:2020")
	if err != nil {
		return err
	}
	go func() { _ = p.Run(ctx) }()
	err = proxy.Serve(ctx, p, listeners)
	return err
}
