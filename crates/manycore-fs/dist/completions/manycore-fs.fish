# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_manycore_fs_global_optspecs
    string join \n h/help V/version
end

function __fish_manycore_fs_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_manycore_fs_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_manycore_fs_using_subcommand
    set -l cmd (__fish_manycore_fs_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -s V -l version -d 'Print version'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "mount" -d 'Mount a file system on an empty directory'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "fork" -d 'Make a branch'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "list" -d 'List the branches'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "diff" -d 'Show what a branch has changed since it was made'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "commit" -d 'Move the changes of a branch to its parent, and end the branch'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "abort" -d 'Forget a branch with its changes'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "run" -d 'Run a command in a branch'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "sync" -d 'Wait until all changes of all branches are on disk, if the mount has `--keep`'
complete -c manycore-fs -n "__fish_manycore_fs_needs_command" -f -a "unmount" -d 'Unmount a file system; everything in it is gone, unless the mount has `--keep`'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l base -d 'Begin with what this directory has. It is only read, and must not change while it is mounted; changes are kept in memory' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l keep -d 'Keep all branches in this folder, which is made if need be, as a log of changes; a mount of the same folder goes on with them. After `fsync` has returned, nothing that was done before is lost, whatever ends. The folder must not be in the base directory or the mount point' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l memory -d 'Most memory for the content of files, all branches together, with K, M, G or T [default: half of the machine\'s memory]' -r
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l threads -d 'Threads that answer the kernel [default: one for each core, at least 2, at most 16]' -r
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l no-xattrs -d 'Refuse extended attributes. The kernel then never asks for them, which makes unpacking and copying faster'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l foreground -d 'Stay in the foreground until the mount ends'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -l allow-other -d 'Let other users in, as far as owners and permissions of the files allow. Users other than root need `user_allow_other` in /etc/fuse.conf'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand fork" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand fork" -l from -d 'The branch to fork [default: inside `run` its branch, else main]' -r
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand fork" -s h -l help -d 'Print help'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand list" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand diff" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand commit" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand commit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand abort" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand abort" -s h -l help -d 'Print help'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l branch -d 'The branch, which is made if it does not exist [default: a new one, `run-` and a number]' -r
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l from -d 'The branch to fork, if `run` makes one [default: inside `run` its branch, else main]' -r
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l keep -d 'Keep the branch afterwards, which is the default'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l commit -d 'Commit the branch if the command succeeds (status 0); else it is kept'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -l abort -d 'Abort the branch afterwards; with --commit, only if the command fails'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand sync" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand sync" -s h -l help -d 'Print help'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand unmount" -l mount -d 'The mount point [default: the mount that the current directory is in]' -r -F
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand unmount" -l lazy -d 'Detach the mount even if files in it are open; it ends when the last one is closed'
complete -c manycore-fs -n "__fish_manycore_fs_using_subcommand unmount" -s h -l help -d 'Print help'
