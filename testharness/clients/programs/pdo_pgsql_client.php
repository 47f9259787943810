<?php
// PHP's PDO_pgsql, played straight and through fenceproxy; see ../doc.go.
define('KEY', getenv('FENCE_KEY'));
define('TOKEN', getenv('FENCE_TOKEN'));

// recipe
// At connect. PostgreSQL wants a backslash before each space and backslash, and
// the quotes of a DSN want one more before each backslash and quote.
function connect_tagged(string $key, string $token): PDO
{
    $quoted = addcslashes(addcslashes($key, '\\ '), "\\'");
    return new PDO("pgsql:dbname=" . getenv('PGDATABASE') . ";options='-c fence.key=$quoted -c fence.token=$token'");
}

// Later: $is_local is 'true' for this transaction only (persistent
// connections), 'false' for the session.
function tag(PDO $db, string $key, string $token, string $is_local): void
{
    $db->prepare("SELECT set_config('fence.key', ?, ?), set_config('fence.token', ?, ?)")
        ->execute([$key, $is_local, $token, $is_local]);
}
// end

function connect_plain(): PDO
{
    return new PDO('pgsql:dbname=' . getenv('PGDATABASE'));
}

function connected(): PDO
{
    return KEY === false ? connect_plain() : connect_tagged(KEY, TOKEN);
}

// code_of is the SQLSTATE that work fails with.
function code_of(callable $work): string
{
    try {
        $work();
        return 'ok';
    } catch (PDOException $e) {
        return $e->errorInfo[0] ?? $e->getMessage();
    }
}

function one(PDO $db, string $sql, array $args = []): mixed
{
    $statement = $db->prepare($sql);
    $statement->execute($args);
    return $statement->fetchColumn();
}

function counted(PDO $db, string $name): int
{
    return one($db, 'SELECT count(*) FROM item WHERE name = ?', [$name]);
}

function say(string $step, mixed ...$seen): void
{
    echo "$step: ", implode(' ', $seen), "\n";
}

function play(): void
{
    $db = connected();
    say('version', phpversion());
    say('connect', one($db, 'SELECT current_user'));
    $values = [42, 1.5, true, 'héllo', null, '{1,2}'];
    $statement = $db->prepare('SELECT ?::int, ?::float8, ?::bool, ?::text, ?::text, ?::int[]');
    $statement->execute($values);
    say('types', count(array_filter(array_map(fn ($a, $b) => $a == $b, $statement->fetch(PDO::FETCH_NUM), $values))));
    $get = $db->prepare('SELECT ?::int + length(?)');
    $prepared = [];
    foreach ([0, 1, 2] as $n) {
        $get->execute([$n, 'abc']);
        $prepared[] = $get->fetchColumn();
    }
    say('prepared', ...$prepared);

    $db->beginTransaction();
    $db->exec("INSERT INTO item VALUES (1, 'commit')");
    $db->commit();
    say('commit', counted($db, 'commit'));
    $db->beginTransaction();
    $db->prepare('INSERT INTO item VALUES (?, ?)')->execute([2, 'rollback']);
    $db->rollBack();
    say('rollback', counted($db, 'rollback'));
    $db->beginTransaction();
    $db->exec("INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a; INSERT INTO item VALUES (4, 'savepoint')");
    $db->exec('ROLLBACK TO a');
    $db->commit();
    say('savepoint', counted($db, 'savepoint'));
    say('errors', ...array_map(fn ($sql) => code_of(fn () => $db->exec($sql)), [
        "INSERT INTO item VALUES (1, 'again')", 'SELEC 1', "SELECT 'x'::int", 'INSERT INTO item VALUES (5, NULL)']));

    $db->pgsqlCopyFromArray('item', array_map(fn ($n) => "$n\tcopy\n", range(1001, 2000)));
    $out = preg_grep('/\tcopy$/', $db->pgsqlCopyToArray('item'));
    say('copy', counted($db, 'copy'), count($out));
    say('large', strlen(one($db, 'SELECT ?::text', [str_repeat('x', 4194304)])));
    $db->beginTransaction();
    $scroll = $db->prepare("SELECT id FROM item WHERE name = 'copy'", [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $scroll->execute();
    for ($read = 0; $scroll->fetch() !== false; $read++);
    unset($scroll);
    $db->commit();
    say('cursor', $read);

    // PDO can't cancel, but a timeout in the server can.
    $db->exec('SET statement_timeout = 100');
    say('cancel', code_of(fn () => $db->exec('SELECT pg_sleep(60)')));
    $db->exec('RESET statement_timeout; LISTEN news');
    connected()->exec("NOTIFY news, 'hello'");
    say('notify', $db->pgsqlGetNotify(PDO::FETCH_ASSOC, 10000)['payload']);
}

function write(PDO $db, int $row, string $name): void
{
    $db->prepare('INSERT INTO item VALUES (?, ?)')->execute([$row, $name]);
}

// ways writes with each way to tag: at connect, for the session, for a transaction.
function ways(string $token, int $row, string $name): array
{
    [$tagged, $session, $pooled] = [connect_tagged(KEY, $token), connect_plain(), connect_plain()];
    return [
        code_of(fn () => write($tagged, $row, $name)),
        code_of(fn () => [tag($session, KEY, $token, 'false'), write($session, $row + 1, $name)]),
        code_of(fn () => [$pooled->beginTransaction(), tag($pooled, KEY, $token, 'true'), write($pooled, $row + 2, $name), $pooled->commit()]),
    ];
}

function fence(): void
{
    $held = connect_tagged(KEY, TOKEN);
    say('holder', code_of(fn () => write($held, 1, 'holder')), ...ways(TOKEN, 2, 'holder'));
    fgets(STDIN); // until the lock was lost
    say('evicted', code_of(fn () => write($held, 11, 'stale')));
    say('stale', ...ways(TOKEN, 12, 'stale'));
    say('unknown', ...ways((string) (TOKEN + 1000000), 15, 'stale'));
}

['play' => 'play', 'fence' => 'fence'][$argv[1]]();
