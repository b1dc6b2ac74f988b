package registration_test

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// ServiceAccountDriver lets agents authenticate with the token of a
// ServiceAccount in their namespace on the hub. The agent asks for the next
// token with the current one, and for the first one with its bootstrap
// credential.
type ServiceAccountDriver struct{}

func (ServiceAccountDriver) Name() string { return "serviceaccount" }

func (ServiceAccountDriver) Next(ctx context.Context, in registration.Input) (registration.Step, error) {
	if !meta.IsStatusConditionTrue(in.Conditions, ocm.ConditionHubAccepted) {
		return registration.Step{At: in.Now.Add(5 * time.Second)}, nil
	}
	const lifetime, renew = time.Hour, 48 * time.Minute
	asked, _ := time.Parse(time.RFC3339, string(in.Stored["asked"])) // the zero time asks now
	if due := asked.Add(renew); in.Stored["token"] != nil && in.Now.Before(due) && in.Now.After(asked.Add(-renew)) {
		return registration.Step{At: due}, nil
	}
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	agent := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in.Cluster, Name: "agent"}}
	if err := in.Hub.SubResource("token").Create(ctx, agent, request); err != nil {
		return registration.Step{},
			fmt.Errorf("create a token of ServiceAccount %q on the hub: %w", client.ObjectKeyFromObject(agent), err)
	}
	return registration.Step{Credential: &registration.Credential{
		User:  &clientcmdapi.AuthInfo{TokenFile: "token"},
		Files: map[string][]byte{"token": []byte(request.Status.Token), "asked": []byte(in.Now.Format(time.RFC3339))},
	}}, nil
}

var _ registration.Driver = ServiceAccountDriver{}

// A project plugs its driver in beside the others, and picks one by the name
// that its users write.
func ExamplePick() {
	drivers := []registration.Driver{ServiceAccountDriver{}}
	driver, err := registration.Pick(drivers, "serviceaccount")
	fmt.Println(driver.Name(), err)
	_, err = registration.Pick(drivers, "oidc")
	fmt.Println(err)
	// Output:
	// serviceaccount <nil>
	// unknown auth type "oidc": use one of serviceaccount
}

// A controller with a reconciler of its own runs a driver without package
// agent. It keeps the data in a Secret of its choice, and writes each result
// before it calls the driver again.
func ExamplePack() {
	step := func(ctx context.Context, driver registration.Driver, data map[string][]byte,
		in registration.Input) (map[string][]byte, error) {
		in.Stored, in.State = registration.Unpack(driver.Name(), data)
		next, err := driver.Next(ctx, in) // in.Hub uses the bootstrap credential until the hub accepts what is stored
		if err != nil {
			return nil, err
		}
		return registration.Pack(driver.Name(), data, next) // a kubeconfig with next.Credential.User follows
	}
	data := map[string][]byte{"cluster-name": []byte("cluster1"), "agent-name": []byte("a1")}
	data, err := step(context.Background(), fixedToken("opaque"), data,
		registration.Input{Now: time.Now(), Cluster: "cluster1", Agent: "a1"})
	fmt.Printf("%s %s %v\n", data["auth-type"], data["token"], err)
	// Output:
	// fixed opaque <nil>
}

// fixedToken is a driver for the example.
type fixedToken string

func (fixedToken) Name() string { return "fixed" }

func (f fixedToken) Next(context.Context, registration.Input) (registration.Step, error) {
	return registration.Step{Credential: &registration.Credential{User: &clientcmdapi.AuthInfo{TokenFile: "token"},
		Files: map[string][]byte{"token": []byte(f)}}}, nil
}
