package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate/csr"

	"github.com/workloadid/workloadid/bootstrap"
)

type joinRequest struct {
	servers    []string
	token      bootstrap.Token
	pins       bootstrap.PinSet
	node       string
	kubeconfig string
}

// join discovers the cluster, requests a certificate and writes a kubeconfig.
func join(ctx context.Context, r joinRequest) error {
	info, err := bootstrap.Discover(ctx, r.servers, r.token, bootstrap.WithPins(r.pins),
		bootstrap.WithProgress(func(waitingFor string) { fmt.Println("waiting:", waitingFor) }))
	if err != nil {
		return err
	}
	fmt.Println("discovered", info.Server)
	key, certificate, err := requestCertificate(ctx, info, r.token, r.node)
	if err != nil {
		return err
	}
	fmt.Println("got a certificate for", r.node)
	return writeKubeconfig(r.kubeconfig, info, key, certificate)
}

// requestCertificate authenticates with the token, which grants nothing else,
// and waits for the approval.
func requestCertificate(ctx context.Context, info *bootstrap.ClusterInfo, token bootstrap.Token,
	node string) (key, certificate []byte, err error) {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            info.Server,
		BearerToken:     token.Reveal(),
		TLSClientConfig: rest.TLSClientConfig{CAData: info.CAData, ServerName: info.TLSServerName},
	})
	if err != nil {
		return nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + node}}, private)
	if err != nil {
		return nil, nil, err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), "",
		certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		crypto.Signer(private))
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate as system:bootstrap:%s: %w", token.ID(), err)
	}
	if certificate, err = csr.WaitForCertificate(ctx, client, name, uid); err != nil {
		return nil, nil, fmt.Errorf("wait for the certificate %q: %w; is it approved?", name, err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), certificate, err
}

func writeKubeconfig(path string, info *bootstrap.ClusterInfo, key, certificate []byte) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["default"] = &clientcmdapi.Cluster{Server: info.Server, CertificateAuthorityData: info.CAData,
		TLSServerName: info.TLSServerName}
	config.AuthInfos["default"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "default", AuthInfo: "default"}
	config.CurrentContext = "default"
	return clientcmd.WriteToFile(*config, path) // with mode 0600
}
