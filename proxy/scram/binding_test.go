package scram_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
)

func TestCertificateBinding(t *testing.T) {
	der := []byte("a certificate")
	short, middle, long := sha256.Sum256(der), sha512.Sum384(der), sha512.Sum512(der)
	for algorithm, want := range map[x509.SignatureAlgorithm][]byte{
		x509.MD5WithRSA:                short[:],
		x509.SHA1WithRSA:               short[:],
		x509.ECDSAWithSHA1:             short[:],
		x509.DSAWithSHA1:               short[:],
		x509.SHA256WithRSA:             short[:],
		x509.SHA256WithRSAPSS:          short[:],
		x509.ECDSAWithSHA256:           short[:],
		x509.DSAWithSHA256:             short[:],
		x509.SHA384WithRSA:             middle[:],
		x509.SHA384WithRSAPSS:          middle[:],
		x509.ECDSAWithSHA384:           middle[:],
		x509.SHA512WithRSA:             long[:],
		x509.SHA512WithRSAPSS:          long[:],
		x509.ECDSAWithSHA512:           long[:],
		x509.PureEd25519:               nil,
		x509.UnknownSignatureAlgorithm: nil,
	} {
		got := scram.CertificateBinding(&x509.Certificate{Raw: der, SignatureAlgorithm: algorithm})
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%v: got %x, want %x", algorithm, got, want)
		}
	}
}
