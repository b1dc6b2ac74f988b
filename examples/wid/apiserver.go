package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/transport"
)

// maxKubeFile is more than any kubeconfig has, or any file that it names, in bytes.
const maxKubeFile = 16 << 20

// checkKubeFile refuses what client-go would read without end. What does not exist is left for client-go to tell. A named
// pipe is read once only, so it cannot be looked at here.
func checkKubeFile(name string) error {
	info, err := os.Stat(name)
	if name == "" || err != nil {
		return nil //nolint:nilerr // client-go tells
	}
	null, err := os.Stat(os.DevNull)
	switch {
	case err == nil && os.SameFile(info, null):
		return nil
	case info.Mode()&os.ModeDevice != 0:
		return noCluster(fmt.Errorf("%.300q is a device", name))
	case info.Mode().IsRegular() && info.Size() > maxKubeFile:
		return noCluster(fmt.Errorf("%.300q is larger than %d bytes", name, maxKubeFile))
	}
	return nil
}

// checkKubeFiles does that for the files that the kubeconfig names for the cluster and the user.
func (id *identity) checkKubeFiles(config clientcmd.ClientConfig) error {
	raw, err := config.RawConfig()
	if err != nil {
		return nil //nolint:nilerr // ClientConfig tells
	}
	current := raw.CurrentContext
	if id.kubeContext != "" {
		current = id.kubeContext
	}
	pair, cluster, user := raw.Contexts[current], &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}
	if pair != nil && raw.Clusters[pair.Cluster] != nil {
		cluster = raw.Clusters[pair.Cluster]
	}
	if pair != nil && raw.AuthInfos[pair.AuthInfo] != nil {
		user = raw.AuthInfos[pair.AuthInfo]
	}
	for _, file := range []string{cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey, user.TokenFile} {
		if err := checkKubeFile(file); err != nil {
			return err
		}
	}
	return nil
}

// boundAnswers keeps an API server, or what claims to be one, from filling the memory and from keeping us waiting in vain.
func boundAnswers(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return patience{transport.Bounded(next)} })
}

// patience has client-go try again only if there is time for it: if it runs out of time while it waits, it says nothing of
// what it waits for.
type patience struct{ next http.RoundTripper }

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Without it nobody follows a redirect, with the user's credentials, to wherever the server says.
	resp.Header.Del("Location")
	deadline, limited := r.Context().Deadline()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// client-go knows seconds only.
	if err == nil && limited && time.Until(deadline) < time.Duration(seconds)*time.Second+grace {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}
