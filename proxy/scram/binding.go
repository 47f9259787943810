package scram

import (
	"crypto"
	_ "crypto/sha256" // the hashes that CertificateBinding uses
	_ "crypto/sha512"
	"crypto/x509"
)

// CertificateBinding returns the tls-server-end-point data of a server's
// certificate (RFC 5929, section 4.1): its DER form under the hash of its
// signature algorithm, SHA-256 in place of MD5 and SHA-1. It is nil where the
// RFC defines none, as for Ed25519, and for algorithms unknown to
// crypto/x509: no channel binding then.
func CertificateBinding(cert *x509.Certificate) []byte {
	hash := bindingHash(cert.SignatureAlgorithm)
	if hash == 0 {
		return nil
	}
	h := hash.New()
	h.Write(cert.Raw)
	return h.Sum(nil)
}

func bindingHash(algorithm x509.SignatureAlgorithm) crypto.Hash {
	switch algorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1,
		x509.SHA256WithRSA, x509.SHA256WithRSAPSS, x509.DSAWithSHA256, x509.ECDSAWithSHA256:
		return crypto.SHA256
	case x509.SHA384WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384:
		return crypto.SHA384
	case x509.SHA512WithRSA, x509.SHA512WithRSAPSS, x509.ECDSAWithSHA512:
		return crypto.SHA512
	default:
		return 0
	}
}
