package doctorcmd

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/doctor"
	identitydoctor "github.com/workloadid/workloadid/internal/doctor/identity"
	trustaws "github.com/workloadid/workloadid/internal/doctor/trust/aws"
)

// DoctorFlags are the flags of wid doctor that the other commands do not have.
type DoctorFlags struct {
	examiner

	id               *credentials.Identity
	inPod            bool
	registry         string
	cluster          string
	clusterAddress   string
	clusterCA        string
	issuer, jwksFile string
	trustFile        string
	trustLive        bool
	guessed          bool         // the provider
	IssuerClient     *http.Client // of tests
}

// NewDoctor returns wid doctor.
func NewDoctor(a *credentials.App) *cobra.Command { return DoctorCommand(a, &DoctorFlags{}) }

// DoctorCommand is NewDoctor with flags that tests have set.
func DoctorCommand(a *credentials.App, d *DoctorFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why a ServiceAccount gets no credentials",
		Long: "Find out why a ServiceAccount gets no credentials: what is wrong, on which cluster, and what to do. It tries the\n" +
			"exchange itself and explains its failure. Tokens are never shown. From a workstation it uses the kubeconfig. In a pod,\n" +
			"without --service-account, it examines the pod's own environment.",
		Example: "  wid doctor --service-account tenant-a/app --region eu-central-1\n" +
			"  wid doctor --pod tenant-a/app-5f7c --registry example.azurecr.io/app\n" +
			"  wid doctor --service-account tenant-a/app --trust-file trust.json -o json\n" +
			"  kubectl exec app-5f7c -- wid doctor --provider aws\n" +
			"  wid doctor --token-file token --annotation eks.amazonaws.com/role-arn=$ROLE --region eu-central-1",
	}
	d.checks = identitydoctor.Checks()
	d.id = a.NewIdentity(cmd)
	d.id.Examines, d.sent, d.reword = true, &d.id.Sent, d.inTermsOfFlags
	d.addTo(cmd)
	d.addTargetsTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d.id.Stderr, d.stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
		if err := d.id.Complete(); err != nil {
			return d.asUsage(err)
		}
		d.timeout = d.id.Timeout
		defer func() { d.id.Relay.Load().End() }()
		return d.run(cmd, func(ctx context.Context) (*doctor.Report, error) { return d.examine(ctx) })
	}
	cmd.AddCommand(newDoctorBootstrap(), newDoctorRegistration(), newDoctorPodIdentity())
	return cmd
}

func (d *DoctorFlags) addTargetsTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.id.Pod, "pod", "", "the pod that gets no credentials, namespace/name; its ServiceAccount if none is named")
	f.BoolVar(&d.inPod, "in-pod", false, "examine the environment of this pod; the default in a pod without --service-account")
	f.StringVar(&d.registry, "registry", "", "artifact repository to pull from, host/name")
	f.StringVar(&d.cluster, "cluster", "", "cluster to reach, its full name in the provider's API")
	f.StringVar(&d.clusterAddress, "cluster-address", "", "address of the cluster to reach")
	f.StringVar(&d.clusterCA, "cluster-ca-file", "", "file with the CA of the cluster to reach")
	f.StringVar(&d.issuer, "issuer", "", "the issuer that the cloud trusts")
	f.StringVar(&d.jwksFile, "jwks-file", "", "file with the keys that were uploaded to the cloud")
	f.StringVar(&d.trustFile, "trust-file", "", "file with what AWS trusts, as aws iam get-role prints it")
	f.BoolVar(&d.trustLive, "trust-live", false, "ask AWS what it trusts, with your own login")
	cli.Rare(f, "in-pod", "cluster-address", "cluster-ca-file", "issuer", "jwks-file")
}

// inTermsOfFlags names the flags of a remedy, and makes commands ask the examined cluster. The check "cluster"
// is about another one.
func (d *DoctorFlags) inTermsOfFlags(f *doctor.Finding) {
	text, ok := strings.CutSuffix(f.Remedy.Text, ".")
	if flags := d.id.FlagsOf(f.Remedy.Option); ok && flags != "" {
		f.Remedy.Text = text + " (" + flags + ")."
	}
	if d.guessed && f.Check == "service-account" && f.Class == "IdentityNotConfigured" && f.Observed == nil {
		f.Message = fmt.Sprintf("The ServiceAccount has no annotation of a cloud. AWS needs %s, Azure %s, Google Cloud %s.",
			aws.RoleARNAnnotation, azure.ClientIDAnnotation, gcp.WorkloadIdentityProviderAnnotation)
		f.Remedy.Text = "For " + d.id.Provider + " (--provider names another one), annotate it:"
	}
	if f.Check == "cluster" {
		return
	}
	inCluster(d.id.KubeFile(), f)
}

func (d *DoctorFlags) examine(ctx context.Context) (*doctor.Report, error) {
	config := identitydoctor.Config{TokenFile: d.id.TokenFile, InPod: d.inPod, Issuer: d.issuer, Repository: d.registry,
		Cluster: d.cluster, ClusterAddress: d.clusterAddress, ShowPolicy: d.showPolicy, Skip: d.skip, Timeout: d.timeout,
		IssuerClient: d.IssuerClient, Identify: identify, Progress: d.waiting.begin}
	for _, step := range []func(context.Context, *identitydoctor.Config) error{d.names, d.connect, d.provider, d.files, d.trust} {
		if err := step(ctx, &config); err != nil {
			return nil, err
		}
	}
	if d.id.TokenStdin {
		var err error
		if config.Token, err = d.id.ReadToken(ctx); err != nil {
			return nil, err
		}
	}
	return identitydoctor.Run(ctx, config), nil
}

// names reads the flags that name objects.
func (d *DoctorFlags) names(_ context.Context, config *identitydoctor.Config) (err error) {
	if d.id.ServiceAccount != "" {
		if config.ServiceAccount, err = credentials.ParseServiceAccount(d.id.ServiceAccount); err != nil {
			return err
		}
	}
	if config.Pod, err = parsePod(d.id.Pod); err != nil {
		return err
	}
	if len(d.id.Annotations) > 0 {
		config.Annotations, err = credentials.Pairs("annotation", d.id.Annotations)
	}
	inAnyPod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if inAnyPod && config.ServiceAccount.Name == "" && !d.id.HasToken() && !d.id.NamesCluster() {
		config.InPod = true
	}
	return err
}

func parsePod(s string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if s != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")) {
		return client.ObjectKey{}, cli.Usagef("--pod is namespace/name, not %.300q", s)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// connect finds the cluster of the ServiceAccount: this one in a pod, and for callers that hold a token only one that is named.
func (d *DoctorFlags) connect(_ context.Context, config *identitydoctor.Config) (err error) {
	switch {
	case d.id.HasToken() && !d.id.NamesCluster():
		return nil
	case config.InPod:
		if config.RESTConfig, err = rest.InClusterConfig(); err != nil {
			config.RESTConfig = nil
			return nil //nolint:nilerr // the checks that need it say so
		}
		cli.BoundAnswers(config.RESTConfig)
		d.sent.Watch(config.RESTConfig)
	case config.ServiceAccount.Name == "" && d.id.Pod == "" && !d.id.HasToken():
		return nil
	default:
		if config.RESTConfig, err = d.id.ClusterConfig(); err != nil {
			return err
		}
		if !d.id.InCluster {
			config.ClusterName = d.id.KubeFile().Current()
		}
	}
	config.Client, err = newDoctorClient(config.RESTConfig)
	return err
}

// provider finds the provider, and the options of its calls.
func (d *DoctorFlags) provider(ctx context.Context, config *identitydoctor.Config) (err error) {
	if d.id.Provider == "" {
		if err := d.guessProvider(ctx, config); err != nil {
			return err
		}
	}
	if config.Provider, err = d.id.Named(); err != nil {
		return err
	}
	opts, err := d.id.Options()
	// The tenant's own choice of an audience is examined, not checked.
	config.Options = append(opts, auth.WithPolicy(auth.Policy{AllowAnyAudience: true}))
	return err
}

// guessProvider takes the provider from annotations of one cloud. Without any it takes the likeliest one: the checks then say what
// is missing, or why the ServiceAccount cannot be read.
func (d *DoctorFlags) guessProvider(ctx context.Context, config *identitydoctor.Config) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: config.Annotations}}
	switch {
	case config.Client != nil && (config.ServiceAccount.Name != "" || config.Pod.Name != ""):
		d.waiting.begin(doctor.Check{Title: "the ServiceAccount and its annotations"})
		sa = peek(ctx, config)
		if len(credentials.CloudsOf(sa)) == 0 {
			d.guessed = true
			return d.id.Flags.Set("provider", likeliest(sa))
		}
	case len(config.Annotations) == 0:
		return nil // named explains it
	}
	return d.id.Detect(sa)
}

// peek returns an empty ServiceAccount if reading it fails or takes long. It leaves a login program behind that ignores ctx.
func peek(ctx context.Context, config *identitydoctor.Config) *corev1.ServiceAccount {
	const enough = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	read := make(chan *corev1.ServiceAccount, 1)
	go func(kube client.Client, account, pod client.ObjectKey) {
		if sa, err := readAccount(ctx, kube, account, pod); err == nil {
			read <- sa
		}
		cancel()
	}(config.Client, config.ServiceAccount, config.Pod)
	<-ctx.Done()
	select {
	case sa := <-read:
		return sa
	default:
		return &corev1.ServiceAccount{}
	}
}

// likeliest returns the provider that misspelt annotations or labels resemble.
func likeliest(sa *corev1.ServiceAccount) string {
	keys := strings.Join(slices.Sorted(maps.Keys(sa.Annotations)), " ") + " " + strings.Join(slices.Sorted(maps.Keys(sa.Labels)), " ")
	switch {
	case strings.Contains(keys, "eks.amazonaws"):
	case strings.Contains(keys, "azure"):
		return azure.ProviderName
	case strings.Contains(keys, "gke.io"), strings.Contains(keys, "gcp"):
		return gcp.ProviderName
	}
	return aws.ProviderName
}

// files reads those that flags name.
func (d *DoctorFlags) files(_ context.Context, config *identitydoctor.Config) (err error) {
	ca, err := readNamed("cluster-ca-file", d.clusterCA)
	if err == nil {
		config.ClusterCA = string(ca)
		config.JWKS, err = readNamed("jwks-file", d.jwksFile)
	}
	return err
}

func readNamed(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := cli.ReadBounded(path)
	if err != nil {
		return nil, cli.Usagef("--%s: %v", flag, err)
	}
	return content, nil
}

// trust reads what AWS trusts from a file, or asks AWS with the login of the person at the command line. It asks only on request,
// because this login is not the one under examination and has more rights.
func (d *DoctorFlags) trust(_ context.Context, config *identitydoctor.Config) error {
	switch {
	case d.trustFile == "" && !d.trustLive:
		return nil
	case d.trustFile != "" && d.trustLive:
		return cli.Usagef("--trust-live and --trust-file both say what AWS trusts: use one of them")
	case config.Provider.GetName() != aws.ProviderName:
		return cli.Usagef("--trust-live and --trust-file are for aws; the answer of %s names what does not fit", config.Provider.GetName())
	case d.trustLive:
		reader := &trustaws.Reader{HTTPClient: d.id.HTTPClient}
		config.Trust, config.Access = reader, reader
		return nil
	}
	content, err := readNamed("trust-file", d.trustFile)
	if err != nil {
		return err
	}
	if config.Trust, err = trustaws.Parse(content); err != nil {
		return cli.Usagef("--trust-file: %v", err)
	}
	return nil
}
