package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
)

// runCluster takes the ServiceAccount and its tokens from a real cluster. The
// cloud is still the one in the program: it trusts that cluster's issuer, and
// has the role that the ServiceAccount asks for.
func runCluster(ctx context.Context, f flags, key client.ObjectKey, p *printer) error {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig %q: %w", f.kubeconfig, err)
	}
	d, err := newDemo(f.region)
	if err != nil {
		return err
	}
	defer d.close()
	if d.client, err = client.New(config, client.Options{}); err != nil {
		return err
	}
	if err := d.trustCluster(ctx, config, key); err != nil {
		return err
	}
	p.note("AWS is simulated; cluster and ServiceAccount are real.")
	p.heading(fmt.Sprintf("ServiceAccount %s of %s asks twice", key, config.Host))
	return d.table(ctx, p, key)
}

// trustCluster sets the cloud up as an administrator of AWS would. What is
// wrong with the ServiceAccount is for the library to tell, so nothing is set
// up for it then.
func (d *demo) trustCluster(ctx context.Context, config *rest.Config, key client.ObjectKey) error {
	issuer, fetch, err := issuerOf(ctx, config)
	if err != nil {
		return err
	}
	var sa corev1.ServiceAccount
	if err := d.client.Get(ctx, key, &sa); err != nil {
		return nil //nolint:nilerr // see above
	}
	arn, err := aws.ParseRoleARN(sa.Annotations[aws.RoleARNAnnotation])
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	d.cloud.AWS().AddOIDCProvider(arn.Account, issuer, fetch, aws.DefaultAudience)
	d.cloud.AWS().SetRole(arn.String(), cloudtest.Trust{Issuer: issuer,
		Subjects: []string{"system:serviceaccount:" + key.Namespace + ":" + key.Name}})
	return nil
}

// issuerOf returns the cluster's issuer, and a client that gets the issuer's
// documents from the API server: the issuer's own address may be reachable from
// inside the cluster only.
func issuerOf(ctx context.Context, config *rest.Config) (string, *http.Client, error) {
	clients, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", nil, err
	}
	body, err := clients.RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("read the issuer's discovery document from the API server: %w", err)
	}
	var document struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return "", nil, fmt.Errorf("read the issuer's discovery document: %w", err)
	}
	if document.Issuer == "" {
		return "", nil, errors.New("the issuer's discovery document names no issuer")
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return "", nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", nil, err
	}
	return document.Issuer, &http.Client{Transport: viaAPIServer{transport, base}}, nil
}

type viaAPIServer struct {
	next http.RoundTripper
	base *url.URL
}

func (t viaAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	path := "/openid/v1/jwks"
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		path = "/.well-known/openid-configuration"
	}
	u := *t.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	r.URL, r.Host = &u, ""
	return t.next.RoundTrip(r)
}
