complete -c manycored -s p -l port -d 'TCP port to listen on; 0 is none, -1 lets the system choose [default: 11211, or the port of -U]' -r
complete -c manycored -s l -l listen -d 'Addresses to listen on: names or numbers, each with :PORT if it has its own. Prefixes of an address, in this order and each with a colon: with -Z, notls, btls (no client certificate) or mtls (a client certificate is required); proto[ascii], proto[binary] or proto[negotiating]; and tag[NAME]' -r
complete -c manycored -s s -l unix-socket -d 'Unix socket to listen on, instead of the network' -r -F
complete -c manycored -s a -l unix-mask -d 'Access mode of the Unix socket, octal' -r
complete -c manycored -s U -l udp-port -d 'UDP port to listen on, at the same addresses; 0 is none, -1 lets the system choose' -r
complete -c manycored -s u -l user -d 'User to run as; required when started as root' -r
complete -c manycored -s m -l memory-limit -d 'Memory for items, in megabytes' -r
complete -c manycored -s c -l conn-limit -d 'Most concurrent connections; if the limit of open files can\'t be raised for them, as many as fit, with a warning' -r
complete -c manycored -s P -l pidfile -d 'Write the process id to this file' -r -F
complete -c manycored -s t -l threads -d 'Worker threads [default: one for each core]' -r
complete -c manycored -s R -l max-reqs-per-event -d 'Most keys of one connection in a turn; 0 is 64, or more if few connections are ready' -r
complete -c manycored -s b -l listen-backlog -d 'Backlog of connections to be accepted' -r
complete -c manycored -s I -l max-item-size -d 'Size limit of an item, with k or m: 1k to 1024m' -r
complete -c manycored -s D -l prefix-delimiter -d 'Delimiter of key prefixes: enables counts by prefix for "stats detail dump" (without it, "stats detail on" does), and "flush_prefix PREFIX" and "mf PREFIX"' -r
complete -c manycored -s B -l protocol -d 'The protocol: ascii (which includes meta), binary, or auto, which goes by a client\'s first byte' -r
complete -c manycored -s e -l memory-file -d 'Warm restart: save all items in this file at a graceful shutdown (the signal USR1), and restore them at the next start, which removes it; best on a tmpfs with room for all of -m' -r -F
complete -c manycored -s N -l napi-ids -d 'No effect: connections stay with the worker that accepted them' -r
complete -c manycored -s n -l slab-min-size -d 'No effect: there are no slab classes' -r
complete -c manycored -s f -l slab-growth-factor -d 'No effect: there are no slab classes' -r
complete -c manycored -s o -l extended -d 'Further options: idle_timeout=SECONDS; read_buf_mem_limit=MB, for the buffers of all connections, beside -m (0 is no limit; default: a quarter of -m, and at least 32); buffer_timeout=SECONDS, after which an idle connection with buffered data is closed while more than half of that is taken (default: 30; 0 is never); udp_reply_ratio=NUM, the largest ratio of a UDP reply to its request, in bytes (default: 100, and no limit on loopback; 0 is no limit); get_line_max=BYTES, the longest line of a get (default: 1048576; at most 16777216); watcher_logbuf_size=KB, the buffer of a slow "watch" client; track_sizes for "stats sizes"; no_lru_crawler, no sweep for expired items; with -Z, ssl_chain_cert=FILE, ssl_key=FILE, ssl_ca_cert=FILE, ssl_verify_mode=NUM (client certificates: 0 not requested, 1 verified if sent, 2 required), ssl_min_version=NUM (2 is TLS 1.2, 3 is 1.3) and ssl_session_cache; and names of memcached\'s that have no effect here, such as no_drop_privileges' -r
complete -c manycored -s Y -l auth-file -d 'Require authentication: a file of lines \'user:password\'' -r -F
complete -c manycored -l metrics -d 'Address of the metrics for Prometheus, at /metrics; a bare port is on loopback' -r
complete -c manycored -l trace -d 'Record the last events of each worker in this file, for the command \'manycore trace\'; a file of that name is replaced' -r -F
complete -c manycored -l trace-classes -d 'What --trace records: connections, turns (of a connection, one in 16), gets, stores, deletes, library (waits at locks, grace periods), or all; \'gets:100\' is one in 100 of them' -r
complete -c manycored -l config -d 'Read options from this file, one a line: \'threads = 4\'; the command line takes precedence' -r -F
complete -c manycored -s A -l enable-shutdown -d 'Allow the command "shutdown"'
complete -c manycored -s d -l daemon -d 'Run in the background'
complete -c manycored -s M -l disable-evictions -d 'Refuse new items when memory is full, instead of evicting others'
complete -c manycored -s k -l lock-memory -d 'Lock all memory, so that it is not swapped out'
complete -c manycored -s v -l verbose -d 'Log more: once, refusals of clients; twice, also connections, requests and replies'
complete -c manycored -s F -l disable-flush-all -d 'Refuse "flush_all" and "flush_prefix"'
complete -c manycored -s S -l enable-sasl -d 'SASL authentication, in the binary protocol only: the users of -Y, else of MEMCACHED_SASL_PWDB, else of saslpasswd2; these may be made after the start'
complete -c manycored -s X -l disable-dumping -d 'Refuse "stats cachedump", "stats detail" and "lru_crawler metadump"'
complete -c manycored -s W -l disable-watch -d 'Refuse "watch"'
complete -c manycored -s C -l disable-cas -d 'Keep no versions of items: "gets" returns 0, and "cas" compares with 0'
complete -c manycored -s r -l enable-coredumps -d 'Raise the limit of core files to its maximum'
complete -c manycored -s L -l enable-largepages -d 'Warn if the system does not allow huge pages; if it does, the server always uses them'
complete -c manycored -s Z -l enable-ssl -d 'TLS on TCP; needs -o ssl_chain_cert=FILE,ssl_key=FILE, which SIGHUP or the command \'refresh_certs\' reloads'
complete -c manycored -s V -l version -d 'Print the version'
complete -c manycored -s i -l license -d 'Print the license'
complete -c manycored -s h -l help -d 'Print help (see more with \'--help\')'
