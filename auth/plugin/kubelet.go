package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/input"
)

const (
	kubeletVersion = "credentialprovider.kubelet.k8s.io/v1"
	kubeletRequest = "CredentialProviderRequest"
	kubeletAnswer  = "CredentialProviderResponse"
)

// ReadKubeletRequest reads the request that the kubelet sends to a credential
// provider plugin before it pulls an image
// (credentialprovider.kubelet.k8s.io/v1). With tokenAttributes in the kubelet's
// configuration, it contains the token and the annotations of the pod's
// ServiceAccount.
func ReadKubeletRequest(ctx context.Context, in io.Reader) (*kubeletv1.CredentialProviderRequest, error) {
	const remedy = "have the kubelet call the plugin"
	content, err := read(ctx, in, input.Read)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, self.Misconfigured(remedy, "there is no request on standard input")
	}
	r := &kubeletv1.CredentialProviderRequest{}
	if json.Unmarshal(content, r) != nil {
		return nil, self.Misconfigured(remedy, "the request is not a %s in JSON", kubeletRequest)
	}
	switch {
	case r.Kind != kubeletRequest:
		return nil, self.Misconfigured(remedy, "the request is a %.100q, not a %s", r.Kind, kubeletRequest)
	case r.APIVersion != kubeletVersion:
		return nil, self.Misconfigured("set apiVersion of the provider in the kubelet's CredentialProviderConfig to "+
			kubeletVersion, "the version %.100q of the request is not known", r.APIVersion)
	case r.Image == "":
		return nil, self.Misconfigured(remedy, "the request names no image")
	}
	return r, nil
}

// kubeletShare is the share of the remaining lifetime for which the kubelet may
// use a credential.
const kubeletShare = 0.8

// EncodeKubeletResponse returns the credentials for the registry of the
// request's image. The kubelet keeps them for four fifths of their remaining
// lifetime, an hour at most. This bounds how long revoked trust remains usable.
func EncodeKubeletResponse(r *kubeletv1.CredentialProviderRequest, username, password string,
	expires time.Time) ([]byte, error) {
	if _, err := provider.RegistryHost(r.Image); err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(r.Image, "/") // unchanged: the kubelet compares it with the image, port included
	if password == "" {
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there is no password to hand out"}
	}
	keep := time.Duration(kubeletShare * float64(time.Until(expires))).Truncate(time.Second)
	keep = min(max(keep, 0), cache.MaxDuration)
	return marshal(kubeletv1.CredentialProviderResponse{
		TypeMeta:      metav1.TypeMeta{APIVersion: r.APIVersion, Kind: kubeletAnswer},
		CacheKeyType:  kubeletv1.RegistryPluginCacheKeyType,
		CacheDuration: &metav1.Duration{Duration: keep},
		Auth:          map[string]kubeletv1.AuthConfig{host: {Username: username, Password: password}},
	})
}
