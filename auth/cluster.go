package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth/provider"
)

const opCluster = "get access to the cluster"

// GetRESTConfig returns the address, CA and token of a remote Kubernetes
// cluster as plain values, for a caller that hands them on; a controller that
// talks to the cluster wants [GetClusterConfig]. The cluster is the one that
// [WithClusterResource] names in the provider's API, or that is at
// [WithClusterAddress].
//
//   - [WithClusterResource] alone: address and CA come from the provider's API.
//   - With [WithClusterAddress]: the address has to be one of the cluster's.
//   - With [WithCAData]: the cluster's first address; the given certificates
//     are trusted instead of the cluster's own.
//   - [WithClusterAddress] and [WithCAData]: the provider's API is not asked
//     about the cluster. All three are refused, except by EKS, whose credential
//     needs the name and whose API is not asked either
//     (provider.ClusterAccess.TakesAll).
//   - The generic provider needs an address and takes no [WithClusterResource].
//
// Without a ServiceAccount, [Policy.AllowCluster] has to allow the cluster for
// the owner of the call.
//
// The default ServiceAccount is Settings.DefaultKubeConfigServiceAccount.
// Policy, cache and errors work as in [GetAccessToken]. Cached access costs one
// lookup. It is safe for concurrent use.
func GetRESTConfig(ctx context.Context, provider Provider, opts ...Option) (*RESTConfig, error) {
	return as[*RESTConfig](get(ctx, provider, opCluster, append(slices.Clip(opts), forCluster), remoteCluster))
}

// forCluster picks the default ServiceAccount for clusters.
// [Settings.MinimumLifetime] does not apply to cluster configurations and
// adapters, because they renew their credentials by themselves.
func forCluster(o *Options) {
	if o.renews = true; o.Usage == UsageAccess {
		o.Usage = UsageKubeConfig
	}
}

func remoteCluster(p Provider, o *Options) (*product, error) {
	r, ok := p.(provider.RESTConfigProvider)
	if !ok {
		return nil, incapable(p, "access to clusters")
	}
	if o.ClusterResource == "" && o.ClusterAddress == "" {
		return nil, misconfigured("set one of them", "neither the cluster nor its address is set").
			About("auth.WithClusterResource", "auth.WithClusterAddress")
	}
	if err := checkCAForm(o.CAData); err != nil {
		return nil, err
	}
	access, err := r.GetAccessTokenOptionsForCluster(&o.Options)
	switch {
	case err != nil:
		return nil, err
	case len(access.AccessTokens) == 0:
		return nil, misconfigured("return a list for each token from GetAccessTokenOptionsForCluster",
			"the provider wants no access token")
	case !access.TakesAll && o.ClusterResource != "" && o.ClusterAddress != "" && o.CAData != "":
		return nil, misconfigured("leave one of them out", "the cluster, its address and its CA are all set")
	}
	if !access.OneCluster && o.OnBehalf {
		err = o.Policy.checkCluster(&ClusterRequest{Owner: *o.owner(), Resource: o.ClusterResource,
			Address: o.ClusterAddress, CAFromObject: o.CAData != ""})
	}
	inputs := [][2]string{{"cluster", o.ClusterResource}, {"address", o.ClusterAddress}, {"CA", o.CAData},
		{"other", access.CacheKey}}
	return &product{inputs: inputs, lists: slices.Clone(access.AccessTokens),
		make: func(ctx context.Context, tokens []Token, o *provider.Options) (Token, error) {
			return checkedConfig(r.NewRESTConfig(ctx, tokens, o))
		}}, err
}

// checkedConfig makes the address canonical. A provider's API may have answered
// anything.
func checkedConfig(config *RESTConfig, err error) (Token, error) {
	if err != nil || config == nil {
		return config, err
	}
	host, err := provider.ParseClusterAddress(config.Host())
	if err != nil {
		e := unavailable("", "the cluster's address cannot be used: %v", err)
		e.Err = err
		return nil, e
	}
	if config.BearerToken() == "" {
		return nil, unavailable("", "the provider gave no bearer token")
	}
	return provider.NewRESTConfig(host, config.BearerToken(), config.CAData(), config.ExpiresAt()), nil
}

// maxCAData bounds the part of a cached credential that an object supplies, in
// bytes. Each edit of the object makes another one, which stays for up to an
// hour.
const maxCAData = 64 << 10

// checkCAForm is quick, for hits of the cache.
func checkCAForm(data string) error {
	if len(data) > maxCAData {
		return misconfigured("pass CA certificates only", "the CA data has %d bytes, at most %d are allowed", len(data),
			maxCAData)
	}
	if data != "" && !strings.Contains(data, "-----BEGIN ") {
		return misconfigured("give the cluster's CA in PEM", "the CA data holds no PEM certificate")
	}
	return nil
}

// checkCAData accepts certificates in PEM and nothing else. It runs before an
// exchange only: parsing certificates costs more than the rest of a hit of the
// cache.
func checkCAData(data string) error {
	if err := checkCAForm(data); err != nil || data == "" {
		return err
	}
	for n, rest := 0, []byte(data); ; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && n == 0:
			return misconfigured("give the cluster's CA in PEM", "the CA data holds no PEM certificate")
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return misconfigured("pass CA certificates only", "the CA data holds a PEM block of type %.50q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return misconfigured("give the cluster's CA in PEM", "certificate %d of the CA data is malformed: %v", n+1, err)
		}
	}
}

// GetClusterConfig returns the rest.Config that a controller wants, for the
// cluster that the options of [GetRESTConfig] name: it renews its credential by
// itself. Every request gets a credential that is valid then, through the cache
// of the options. It waits for as long as the request's context allows. The
// config is good for as long as the cluster keeps its address. After a 401 the
// next request brings a new credential, at most every ten seconds. The
// credential is only ever sent to the cluster's address.
//
// Options, Policy and ServiceAccount are checked for each request: deleting the
// ServiceAccount or a refusal of the Policy stops the next one. Without a cache
// the config itself keeps the credential, for 75 to 80 % of its lifetime.
//
// The proxy and the HTTP client of the options serve the provider's API; set
// those for the cluster on the result. The config is safe for concurrent use as
// rest.Configs are. Requests fail with the errors of [GetRESTConfig].
func GetClusterConfig(ctx context.Context, provider Provider, opts ...Option) (*rest.Config, error) {
	source := newAdapter(provider, opts)
	first, err := GetRESTConfig(ctx, provider, source.options(impatient)...)
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(first.Host(), "https://"), "/")
	config := &rest.Config{Host: first.Host(), TLSClientConfig: rest.TLSClientConfig{CAData: first.CAData()}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &clusterTransport{next: next, source: source, host: host}
	})
	return config, nil
}

// clusterTransport adds the credential to requests.
type clusterTransport struct {
	next   http.RoundTripper
	source *adapter
	host   string
}

// RoundTrip implements http.RoundTripper.
func (t *clusterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	credential, err := t.credential(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the request's error counts
		}
		return nil, err
	}
	obtained := time.Now()
	clone := r.Clone(r.Context())
	clone.Header.Set("Authorization", "Bearer "+credential.BearerToken())
	resp, err := t.next.RoundTrip(clone)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.source.invalidate(obtained)
	}
	return resp, err
}

// credential refuses requests to another address, such as those after a
// redirect.
func (t *clusterTransport) credential(r *http.Request) (*RESTConfig, error) {
	if r.URL.Host != t.host || r.URL.Scheme != "https" {
		address, err := provider.ParseClusterAddress(r.URL.Scheme + "://" + r.URL.Host)
		if err != nil || address != "https://"+t.host {
			return nil, &Error{Reason: ErrDenied, Operation: opCluster, Provider: t.source.provider.GetName(),
				Message: fmt.Sprintf("the credential is for the cluster at %q, not for %.300q", t.host, r.URL.Host)}
		}
	}
	return GetRESTConfig(r.Context(), t.source.provider, t.source.options()...)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *clusterTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
