# Checks of our own. autoconf-archive is not assumed to be installed.

# MG_CFLAG(FLAG, VARIABLE): appends FLAG to VARIABLE when the compiler takes it without a word.
AC_DEFUN([MG_CFLAG], [
  AS_VAR_PUSHDEF([mg_var], [mg_cv_cflag_$1])
  AC_CACHE_CHECK([whether $CC takes $1], [mg_var], [
    mg_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [AS_VAR_SET([mg_var], [yes])], [AS_VAR_SET([mg_var], [no])])
    CFLAGS=$mg_saved_CFLAGS
  ])
  AS_VAR_IF([mg_var], [yes], [$2="$$2 $1"])
  AS_VAR_POPDEF([mg_var])
])

# MG_LINK_CHECK(FLAGS, WHAT): stops unless a program links with FLAGS; names WHAT the user asked for.
AC_DEFUN([MG_LINK_CHECK], [
  AC_MSG_CHECKING([whether $CC links with $1])
  mg_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $1"
  AC_LINK_IFELSE([AC_LANG_PROGRAM()], [AC_MSG_RESULT([yes])], [
    AC_MSG_RESULT([no])
    AC_MSG_ERROR([$2 needs a compiler that links with $1; with clang on Debian: apt-get install clang libclang-rt-14-dev])
  ])
  CFLAGS=$mg_saved_CFLAGS
])

# MG_SANDBOX(NAME, DEFAULT, TEST, NEEDS): --enable-sandbox-NAME auto/yes/no, and the condition SANDBOX_NAME.
# TEST is a shell command that tells whether its dependencies are there; NEEDS names them in the message.
AC_DEFUN([MG_SANDBOX], [
  AC_ARG_ENABLE([sandbox-$1],
    [AS_HELP_STRING([--enable-sandbox-$1], [build the sandbox plugin $1 @<:@$2@:>@])],
    [mg_want=$enableval], [mg_want=$2])
  mg_have=no
  AS_IF([test "x$mg_want" != xno], [AS_IF([$3], [mg_have=yes])])
  AS_IF([test "x$mg_want" = xyes && test "x$mg_have" = xno],
    [AC_MSG_ERROR([--enable-sandbox-$1 was given, but it needs $4])])
  AS_IF([test "x$mg_have" = xyes],
    [mg_sandboxes="$mg_sandboxes $1"],
    [mg_sandboxes_off="$mg_sandboxes_off $1"])
  AM_CONDITIONAL(m4_toupper(m4_translit([SANDBOX_$1], [-], [_])), [test "x$mg_have" = xyes])
])
