package authenticator_test

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/authenticator"
	"github.com/workloadid/workloadid/bootstrap/tokens"
)

// A server authenticates a machine that joins with a bootstrap token.
func Example() {
	ctx := context.Background()
	kube := fake.NewClientBuilder().Build()
	token, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = tokens.Manager{Client: kube}.Create(ctx, bootstrap.TokenConfig{Token: token,
		Expires: time.Now().Add(time.Hour), Usages: []string{bootstrap.UsageAuthentication}})
	if err != nil {
		fmt.Println(err)
		return
	}

	a := authenticator.New(kube)
	for _, presented := range []string{"abcdef.0123456789abcdef", "abcdef.fedcba9876543210"} {
		response, ok, err := a.AuthenticateToken(ctx, presented)
		if err != nil || !ok {
			fmt.Println("not authenticated:", err)
			continue
		}
		fmt.Println(response.User.GetName(), response.User.GetGroups())
	}
	// Output:
	// system:bootstrap:abcdef [system:bootstrappers]
	// not authenticated: <nil>
}
