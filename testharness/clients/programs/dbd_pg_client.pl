# DBD::Pg, played straight and through fenceproxy; see ../doc.go.
use strict;
use warnings;
use utf8;
use DBI;
use DBD::Pg qw(:async PG_BYTEA);

$| = 1;
my ($KEY, $TOKEN) = @ENV{qw(FENCE_KEY FENCE_TOKEN)};
my %ATTRIBUTES = (RaiseError => 1, PrintError => 0, PrintWarn => 0);

# recipe
# At connect. PostgreSQL wants a backslash before each space and backslash, and
# the quotes of a DSN want one more before each backslash and quote.
sub connect_tagged {
	my ($key, $token) = @_;
	$key =~ s/([\\ ])/\\$1/g;
	$key =~ s/([\\'])/\\$1/g;
	return DBI->connect("dbi:Pg:options='-c fence.key=$key -c fence.token=$token'", '', '', \%ATTRIBUTES);
}

# Later: $is_local is 1 for this transaction only (pools), 0 for the session.
sub tag {
	my ($dbh, $key, $token, $is_local) = @_;
	$dbh->selectall_arrayref(
		"SELECT set_config('fence.key', ?, ?), set_config('fence.token', ?, ?)", {}, $key, $is_local, $token, $is_local);
}
# end

sub connect_plain { return DBI->connect('dbi:Pg:', '', '', \%ATTRIBUTES) }
sub connected { return defined $KEY ? connect_tagged($KEY, $TOKEN) : connect_plain() }

# code_of is the SQLSTATE that work fails with.
sub code_of {
	my ($work) = @_;
	return eval { $work->(); 1 } ? 'ok' : $DBI::state || $@;
}

sub one { my ($dbh, $sql, @args) = @_; return $dbh->selectrow_array($sql, {}, @args) }
sub count { return one($_[0], 'SELECT count(*) FROM item WHERE name = ?', $_[1]) }
sub say_step { print shift, ": @_\n" }

sub play {
	my $dbh = connected();
	say_step(version => $DBD::Pg::VERSION);
	say_step(connect => one($dbh, 'SELECT current_user'));
	my @values = (42, 1.5, 1, 'héllo', undef, [1, 2]);
	my $row = $dbh->selectrow_arrayref('SELECT ?::int, ?::float8, ?::bool, ?::text, ?::text, ?::int[]', {}, @values);
	my $same = grep { text($row->[$_]) eq text($values[$_]) } 0 .. $#values;
	say_step(types => $same);
	my $get = $dbh->prepare('SELECT ?::int + length(?)', { pg_prepare_now => 1 });
	say_step(prepared => map { $get->execute($_, 'abc'); $get->fetchall_arrayref->[0][0] } 0 .. 2);

	$dbh->begin_work;
	$dbh->do("INSERT INTO item VALUES (1, 'commit')");
	$dbh->commit;
	say_step(commit => count($dbh, 'commit'));
	$dbh->begin_work;
	$dbh->do('INSERT INTO item VALUES (?, ?)', {}, 2, 'rollback');
	$dbh->rollback;
	say_step(rollback => count($dbh, 'rollback'));
	$dbh->begin_work;
	$dbh->do("INSERT INTO item VALUES (3, 'savepoint')");
	$dbh->pg_savepoint('a');
	$dbh->do("INSERT INTO item VALUES (4, 'savepoint')");
	$dbh->pg_rollback_to('a');
	$dbh->commit;
	say_step(savepoint => count($dbh, 'savepoint'));
	say_step(errors => map { my $sql = $_; code_of(sub { $dbh->do($sql) }) }
		"INSERT INTO item VALUES (1, 'again')", 'SELEC 1', "SELECT 'x'::int", 'INSERT INTO item VALUES (5, NULL)');

	$dbh->do('COPY item FROM STDIN');
	$dbh->pg_putcopydata("$_\tcopy\n") for 1001 .. 2000;
	$dbh->pg_putcopyend;
	$dbh->do('COPY item TO STDOUT');
	my ($out, $line) = (0, '');
	while ($dbh->pg_getcopydata(\$line) >= 0) { $out++ if $line =~ /\tcopy\n/ }
	say_step(copy => count($dbh, 'copy'), $out);
	say_step(large => length one($dbh, 'SELECT ?::text', 'x' x 4194304));
	$dbh->begin_work;
	$dbh->do("DECLARE scroll CURSOR FOR SELECT id FROM item WHERE name = 'copy'");
	my $read = 0;
	while (my $n = @{ $dbh->selectcol_arrayref('FETCH 100 FROM scroll') }) { $read += $n }
	$dbh->commit;
	say_step(cursor => $read);

	my $other = connected();
	say_step(cancel => cancel($dbh, $other));
	$dbh->do('LISTEN news');
	$other->do("NOTIFY news, 'hello'");
	my $news;
	select undef, undef, undef, 0.01 until $news = $dbh->pg_notifies;
	say_step(notify => $news->[2]);
}

sub text {
	my ($value) = @_;
	return ref $value ? "@$value" : defined $value ? $value : 'null';
}

# cancel cancels a query as soon as the other session sees it run. DBD::Pg
# keeps to itself how a query ended that pg_cancel ended, so the code is that
# of a query which the other session ends.
sub cancel {
	my ($dbh, $other) = @_;
	$dbh->do('SELECT pg_sleep(60)', { pg_async => PG_ASYNC });
	running($other);
	$dbh->pg_cancel or die 'the query was not cancelled';
	one($dbh, 'SELECT 7') == 7 or die 'the session is of no use after a cancel';
	$dbh->do('SELECT pg_sleep(60)', { pg_async => PG_ASYNC });
	running($other);
	one($other, 'SELECT pg_cancel_backend(?)', $dbh->{pg_pid});
	return code_of(sub { $dbh->pg_result });
}

sub running {
	my ($other) = @_;
	select undef, undef, undef, 0.01 until one($other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
}

sub write_row { my ($dbh, $row, $name) = @_; $dbh->do('INSERT INTO item VALUES (?, ?)', {}, $row, $name) }

# ways writes with each way to tag: at connect, for the session, for a transaction.
sub ways {
	my ($token, $row, $name) = @_;
	my ($tagged, $session, $pooled) = (connect_tagged($KEY, $token), connect_plain(), connect_plain());
	return (
		code_of(sub { write_row($tagged, $row, $name) }),
		code_of(sub { tag($session, $KEY, $token, 0); write_row($session, $row + 1, $name) }),
		code_of(sub {
			$pooled->begin_work;
			tag($pooled, $KEY, $token, 1);
			write_row($pooled, $row + 2, $name);
			$pooled->commit;
		}));
}

sub fence {
	my $held = connect_tagged($KEY, $TOKEN);
	say_step(holder => code_of(sub { write_row($held, 1, 'holder') }), ways($TOKEN, 2, 'holder'));
	<STDIN>; # until the lock was lost
	say_step(evicted => code_of(sub { write_row($held, 11, 'stale') }));
	say_step(stale => ways($TOKEN, 12, 'stale'));
	say_step(unknown => ways($TOKEN + 1000000, 15, 'stale'));
}

{ play => \&play, fence => \&fence }->{ $ARGV[0] }->();
