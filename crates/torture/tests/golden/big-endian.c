/*
 * Makes the images "big-endian-encrypted" and "big-endian-log" with libzpool of a big-endian machine. What is
 * built with the cross compiler for s390x runs under qemu-s390x-static; see README.md.
 *
 * big-endian FOLDER TARGET encrypted: TARGET is an empty file. FOLDER has the image "openzfs-2.3.2-big-endian",
 *   which is changed: file system be/be is sent from it and received under keys.
 * big-endian FOLDER TARGET log: likewise; then intent logs are written, and the program ends without a sync.
 */
#include <sys/zfs_context.h>
#include <sys/spa.h>
#include <sys/dmu.h>
#include <sys/dmu_objset.h>
#include <sys/dmu_tx.h>
#include <sys/dmu_send.h>
#include <sys/dmu_recv.h>
#include <sys/dsl_crypt.h>
#include <sys/dsl_dataset.h>
#include <sys/dsl_destroy.h>
#include <sys/zap.h>
#include <sys/zfs_znode.h>
#include <sys/zfs_quota.h>
#include <sys/zil.h>
#include <sys/sa.h>
#include <sys/sa_impl.h>
#include <sys/spa_impl.h>
#include <sys/dsl_pool.h>
#include <sys/zil_impl.h>
#include <sys/zfs_sa.h>
#include <sys/zio_crypt.h>
#include <libnvpair.h>
#include <libzutil.h>
#include <zfs_fletcher.h>

/* The byte of a wrapping key, 32 times: "a" and the number of the suite. */
static uint8_t
key_byte(uint64_t crypt)
{
	return ('a' + crypt);
}

static dsl_crypto_params_t *
params(uint64_t crypt, nvlist_t **props, nvlist_t **hidden)
{
	dsl_crypto_params_t *dcp = NULL;
	uint8_t key[WRAPPING_KEY_LEN];
	nvlist_t *p = fnvlist_alloc(), *h = fnvlist_alloc();

	memset(key, key_byte(crypt), sizeof (key));
	fnvlist_add_uint64(p, "encryption", crypt);
	fnvlist_add_uint64(p, "keyformat", ZFS_KEYFORMAT_HEX);
	fnvlist_add_string(p, "keylocation", "prompt");
	fnvlist_add_uint64(p, "pbkdf2salt", 0);
	fnvlist_add_uint64(p, "pbkdf2iters", 0);
	fnvlist_add_uint8_array(h, "wkeydata", key, sizeof (key));
	if (props != NULL) {
		*props = p;
		*hidden = h;
		return (NULL);
	}
	VERIFY0(dsl_crypto_params_create_nvlist(DCP_CMD_NONE, p, h, &dcp));
	return (dcp);
}

/* SA_HDR_SIZE, without the handle. */
#define	SA_HDR_LEN(sa)	(BF32_GET_SB((sa)->sa_layout_info, 10, 6, 3, 0))
/* As the kernel has them, from Linux. */
#define	LINUX_ATTR_MODE		(1 << 0)
#define	LINUX_ATTR_UID		(1 << 1)
#define	LINUX_ATTR_GID		(1 << 2)
#define	LINUX_ATTR_MTIME	(1 << 5)
#define	LINUX_ATTR_XVATTR	(1U << 31)

/* Owners and generations, so that accounts are kept: libzpool has no file systems. */
static int
file_info(dmu_object_type_t type, const void *data, zfs_file_info_t *info)
{
	const sa_hdr_phys_t *sa = data;
	const uint64_t *words;

	if (type != DMU_OT_SA)
		return (ENOENT);
	info->zfi_project = 0;
	if (data == NULL)
		return (EEXIST);
	info->zfi_user = info->zfi_group = info->zfi_generation = 0;
	if (sa->sa_magic == 0)
		return (0);
	VERIFY3U(sa->sa_magic, ==, SA_MAGIC);
	/* Mode, size, generation, user, group, parent, flags, ...: the order of every file. */
	words = (const uint64_t *)((const char *)data + SA_HDR_LEN(sa));
	info->zfi_generation = words[2];
	info->zfi_user = words[3];
	info->zfi_group = words[4];
	if (words[6] & ZFS_PROJID)
		info->zfi_project = *(const uint64_t *)
		    ((const char *)words + SA_PROJID_OFFSET);
	return (0);
}

static spa_t *
open_pool(const char *name)
{
	spa_t *spa;

	VERIFY0(spa_open(name, &spa, FTAG));
	return (spa);
}

static void
sync_pool(const char *name)
{
	spa_t *spa = open_pool(name);

	txg_wait_synced(spa_get_dsl(spa), 0);
	spa_close(spa, FTAG);
}

static void
import(char *folder)
{
	importargs_t args = { .path = &folder, .paths = 1, .can_be_active = B_TRUE };
	libpc_handle_t handle = { .lpc_ops = &libzpool_config_ops, .lpc_printerr = B_TRUE };
	nvlist_t *config = NULL;

	VERIFY0(zpool_find_config(&handle, "be", &config, &args));
	VERIFY0(spa_import("be", config, NULL, 0));
}

static void
create_pool(const char *name, const char *path)
{
	nvlist_t *file = fnvlist_alloc(), *root = fnvlist_alloc(), *props = fnvlist_alloc();

	fnvlist_add_string(file, ZPOOL_CONFIG_TYPE, VDEV_TYPE_FILE);
	fnvlist_add_string(file, ZPOOL_CONFIG_PATH, path);
	fnvlist_add_uint64(file, ZPOOL_CONFIG_ASHIFT, 9);
	fnvlist_add_uint64(file, ZPOOL_CONFIG_IS_LOG, 0);
	fnvlist_add_string(root, ZPOOL_CONFIG_TYPE, VDEV_TYPE_ROOT);
	fnvlist_add_nvlist_array(root, ZPOOL_CONFIG_CHILDREN, (const nvlist_t **)&file, 1);
	for (int i = 0; i < SPA_FEATURES; i++) {
		char feature[MAXNAMELEN];

		(void) snprintf(feature, sizeof (feature), "feature@%s", spa_feature_table[i].fi_uname);
		fnvlist_add_uint64(props, feature, 0);
	}
	VERIFY0(spa_create(name, root, props, NULL, NULL));
}

static void
snapshot(const char *fs, const char *name)
{
	VERIFY0(dmu_objset_snapshot_one(fs, name));
}

/* Makes a snapshot in which every large file is a hole. */
static void
make_small(void)
{
	objset_t *os;
	uint64_t object = 0;

	VERIFY0(dmu_objset_own("be/be", DMU_OST_ZFS, B_FALSE, B_FALSE, FTAG, &os));
	while (dmu_object_next(os, &object, B_FALSE, 0) == 0) {
		dmu_object_info_t info;

		VERIFY0(dmu_object_info(os, object, &info));
		if (info.doi_type == DMU_OT_PLAIN_FILE_CONTENTS && info.doi_max_offset > 100000)
			VERIFY0(dmu_free_long_range(os, object, 0, DMU_OBJECT_END));
	}
	dmu_objset_disown(os, B_FALSE, FTAG);
	sync_pool("be");
	snapshot("be/be", "small");
}

static int
write_stream(objset_t *os, void *buf, int len, void *arg)
{
	(void) os;
	VERIFY3S(write(*(int *)arg, buf, len), ==, len);
	return (0);
}

static void
send(const char *snap, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	offset_t offset = 0;
	dmu_send_outparams_t out = { .dso_outfunc = write_stream, .dso_arg = &fd };

	VERIFY3S(fd, >=, 0);
	VERIFY0(dmu_send(snap, NULL, B_FALSE, B_FALSE, B_FALSE, B_FALSE, B_FALSE, 0, 0, NULL, fd, &offset, &out));
	(void) close(fd);
}

/* Receives a stream into a new file system; one that is encrypted unless crypt is 0. */
static void
receive(const char *path, const char *fs, uint64_t crypt)
{
	dmu_replay_record_t begin;
	dmu_recv_cookie_t cookie;
	zfs_file_t *file;
	offset_t offset = 0;
	nvlist_t *props = NULL, *hidden = NULL;
	objset_t *os;
	char name[ZFS_MAX_DATASET_NAME_LEN];

	if (crypt != 0)
		(void) params(crypt, &props, &hidden);
	VERIFY0(zfs_file_open(path, O_RDONLY, 0, &file));
	VERIFY0(zfs_file_read(file, &begin, sizeof (begin), NULL));
	offset = sizeof (begin);
	VERIFY0(dmu_recv_begin(fs, "got", &begin, B_FALSE, B_FALSE, B_FALSE, props, hidden, NULL, &cookie, file,
	    &offset));
	VERIFY0(dmu_recv_stream(&cookie, &offset));
	VERIFY0(dmu_recv_end(&cookie, NULL));
	zfs_file_close(file);
	(void) snprintf(name, sizeof (name), "%s@got", fs);
	VERIFY0(dsl_destroy_snapshot(name, B_FALSE));

	VERIFY0(dmu_objset_own(fs, DMU_OST_ZFS, B_FALSE, B_TRUE, FTAG, &os));
	/* It counts what owners use by itself. */
	dsl_pool_config_enter(dmu_objset_pool(os), FTAG);
	dmu_objset_id_quota_upgrade(os);
	dsl_pool_config_exit(dmu_objset_pool(os), FTAG);
	while (!dmu_objset_userspace_present(os) || !dmu_objset_projectquota_present(os))
		(void) usleep(10000);
	/* Until that thread has let go of the data set, which is held here, too. */
	while (zfs_refcount_count(&dmu_objset_ds(os)->ds_longholds) > 1)
		(void) usleep(10000);
	txg_wait_synced(dmu_objset_pool(os), 0);
	dmu_objset_disown(os, B_TRUE, FTAG);
}

/* An object of so many words n * n + add, in blocks of 512 bytes, 32 pointers to an indirect block. */
static void
make_object(objset_t *os, dmu_object_type_t type, uint64_t count, uint64_t add)
{
	uint64_t *words = umem_alloc(count * 8, UMEM_NOFAIL);
	uint64_t object;
	dmu_tx_t *tx = dmu_tx_create(os);

	dmu_tx_hold_bonus(tx, DMU_NEW_OBJECT);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	object = dmu_object_alloc_ibs(os, type, 512, 12, DMU_OT_UINT64_OTHER, 64, tx);
	dmu_tx_commit(tx);
	for (uint64_t n = 0; n < count; n++)
		words[n] = n * n + add;
	tx = dmu_tx_create(os);
	dmu_tx_hold_write(tx, object, 0, count * 8);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	dmu_write(os, object, 0, count * 8, words, tx);
	dmu_tx_commit(tx);
}

/* A table of names, and an object whose bonus, of a type that is encrypted, has words. */
static void
make_table(objset_t *os)
{
	dmu_tx_t *tx = dmu_tx_create(os);
	uint64_t table, object;
	dmu_buf_t *bonus;

	dmu_tx_hold_zap(tx, DMU_NEW_OBJECT, B_TRUE, NULL);
	dmu_tx_hold_bonus(tx, DMU_NEW_OBJECT);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	table = zap_create(os, DMU_OT_DIRECTORY_CONTENTS, DMU_OT_NONE, 0, tx);
	for (uint64_t n = 0; n < 300; n++) {
		char name[80];

		(void) snprintf(name, sizeof (name), "a name %llu%*s", (u_longlong_t)n, n == 7 ? 60 : 0, "");
		VERIFY0(zap_add(os, table, name, 8, 1, &n, tx));
	}
	object = dmu_object_alloc(os, DMU_OT_PLAIN_FILE_CONTENTS, 512, DMU_OT_SA, 160, tx);
	VERIFY0(dmu_bonus_hold(os, object, FTAG, &bonus));
	dmu_buf_will_dirty(bonus, tx);
	for (uint64_t n = 0; n < 20; n++)
		((uint64_t *)bonus->db_data)[n] = n * n * n + 1;
	dmu_buf_rele(bonus, FTAG);
	dmu_tx_commit(tx);
}

static const struct {
	uint64_t crypt;
	const char *name;
} suites[] = {
	{ ZIO_CRYPT_AES_128_CCM, "aes-128-ccm" }, { ZIO_CRYPT_AES_192_CCM, "aes-192-ccm" },
	{ ZIO_CRYPT_AES_256_CCM, "aes-256-ccm" }, { ZIO_CRYPT_AES_128_GCM, "aes-128-gcm" },
	{ ZIO_CRYPT_AES_192_GCM, "aes-192-gcm" }, { ZIO_CRYPT_AES_256_GCM, "aes-256-gcm" },
};

static void
make_encrypted(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(suites); i++) {
		char fs[ZFS_MAX_DATASET_NAME_LEN];
		objset_t *os;
		dsl_crypto_params_t *dcp = params(suites[i].crypt, NULL, NULL);

		(void) snprintf(fs, sizeof (fs), "bec/%s", suites[i].name);
		VERIFY0(dmu_objset_create(fs, DMU_OST_OTHER, 0, dcp, NULL, NULL));
		VERIFY0(dmu_objset_own(fs, DMU_OST_OTHER, B_FALSE, B_TRUE, FTAG, &os));
		make_object(os, DMU_OT_PLAIN_FILE_CONTENTS, 8192, 0);
		make_object(os, DMU_OT_UINT64_OTHER, 1000, 1);
		make_table(os);
		txg_wait_synced(dmu_objset_pool(os), 0);
		dmu_objset_disown(os, B_TRUE, FTAG);
	}
	/* In pieces: gang blocks under a key. */
	objset_t *os;
	dsl_crypto_params_t *dcp = params(ZIO_CRYPT_AES_256_GCM, NULL, NULL);
	VERIFY0(dmu_objset_create("bec/gang", DMU_OST_OTHER, 0, dcp, NULL, NULL));
	VERIFY0(dmu_objset_own("bec/gang", DMU_OST_OTHER, B_FALSE, B_TRUE, FTAG, &os));
	dmu_tx_t *tx = dmu_tx_create(os);
	uint64_t words[2048], object;
	dmu_tx_hold_bonus(tx, DMU_NEW_OBJECT);
	dmu_tx_hold_write(tx, DMU_NEW_OBJECT, 0, sizeof (words));
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	object = dmu_object_alloc(os, DMU_OT_PLAIN_FILE_CONTENTS, sizeof (words), DMU_OT_NONE, 0, tx);
	/* Words that do not compress. */
	for (uint64_t n = 0; n < 2048; n++)
		words[n] = (n + 1) * 0x9e3779b97f4a7c15ULL;
	extern uint64_t metaslab_force_ganging;
	extern uint_t metaslab_force_ganging_pct;
	metaslab_force_ganging_pct = 100;
	metaslab_force_ganging = 4096;
	dmu_write(os, object, 0, sizeof (words), words, tx);
	dmu_tx_commit(tx);
	txg_wait_synced(dmu_objset_pool(os), 0);
	metaslab_force_ganging = SPA_MAXBLOCKSIZE + 1;
	dmu_objset_disown(os, B_TRUE, FTAG);
}

/* The objset whose log is written. */
typedef struct {
	objset_t *os;
	zilog_t *zilog;
	uint64_t root, text, dir;
} fs_t;

static void
get_done(zgd_t *zgd, int error)
{
	(void) error;
	if (zgd->zgd_db != NULL)
		dmu_buf_rele(zgd->zgd_db, zgd);
	umem_free(zgd, sizeof (*zgd));
}

/* Data of a write that is not in its record yet. */
static int
get_data(void *arg, uint64_t gen, lr_write_t *lr, char *buf, struct lwb *lwb, zio_t *zio)
{
	fs_t *fs = arg;
	zgd_t *zgd;
	int error;

	(void) gen;
	if (buf != NULL)
		return (dmu_read(fs->os, lr->lr_foid, lr->lr_offset, lr->lr_length, buf, DMU_READ_NO_PREFETCH));
	zgd = umem_zalloc(sizeof (*zgd), UMEM_NOFAIL);
	zgd->zgd_lwb = lwb;
	zgd->zgd_private = fs;
	error = dmu_buf_hold_noread(fs->os, lr->lr_foid, lr->lr_offset, zgd, &zgd->zgd_db);
	if (error == 0) {
		zgd->zgd_bp = &lr->lr_blkptr;
		error = dmu_sync(zio, lr->lr_common.lrc_txg, get_done, zgd);
		if (error == 0)
			return (0);
	}
	get_done(zgd, error);
	return (error);
}

/* A record with what follows its fixed part, which is yet to be filled in. */
static itx_t *
record(uint64_t type, size_t fixed, const void *more, size_t more_size)
{
	itx_t *itx = zil_itx_create(type, fixed + more_size);

	memset((char *)&itx->itx_lr + sizeof (lr_t), 0, fixed + more_size - sizeof (lr_t));
	memcpy((char *)&itx->itx_lr + fixed, more, more_size);
	return (itx);
}

static void
assign(fs_t *fs, itx_t *itx)
{
	dmu_tx_t *tx = dmu_tx_create(fs->os);

	dmu_tx_hold_bonus(tx, fs->root);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	itx->itx_sync = B_TRUE;
	zil_itx_assign(fs->zilog, itx, tx);
	dmu_tx_commit(tx);
}

/* A new node; what follows: attributes, if any, name, target of a link. */
static void
make(fs_t *fs, uint64_t type, uint64_t dir, uint64_t object, uint64_t mode, uint64_t rdev, const void *more,
    size_t more_size)
{
	itx_t *itx = record(type, sizeof (lr_create_t), more, more_size);
	_lr_create_t *lr = &((lr_create_t *)&itx->itx_lr)->lr_create;

	lr->lr_doid = dir;
	LR_FOID_SET_OBJ(lr->lr_foid, object);
	LR_FOID_SET_SLOTS(lr->lr_foid, 1);
	lr->lr_mode = mode;
	lr->lr_uid = 7;
	lr->lr_gid = 8;
	lr->lr_gen = 99;
	lr->lr_crtime[0] = 1700000000 + object;
	lr->lr_crtime[1] = 5;
	lr->lr_rdev = rdev;
	assign(fs, itx);
}

static void
removal(fs_t *fs, uint64_t type, uint64_t dir, const char *name)
{
	itx_t *itx = record(type, sizeof (lr_remove_t), name, strlen(name) + 1);

	((lr_remove_t *)&itx->itx_lr)->lr_doid = dir;
	assign(fs, itx);
}

static void
rename_to(fs_t *fs, uint64_t type, uint64_t from, uint64_t to, const char *names, size_t size)
{
	itx_t *itx = record(type, sizeof (lr_rename_t), names, size);
	_lr_rename_t *lr = &((lr_rename_t *)&itx->itx_lr)->lr_rename;

	lr->lr_sdoid = from;
	lr->lr_tdoid = to;
	assign(fs, itx);
}

static void
write_copied(fs_t *fs, uint64_t object, uint64_t offset, const void *data, size_t size)
{
	itx_t *itx = record(TX_WRITE, sizeof (lr_write_t), data, size);
	lr_write_t *lr = (lr_write_t *)&itx->itx_lr;

	lr->lr_foid = object;
	lr->lr_offset = offset;
	lr->lr_length = size;
	itx->itx_wr_state = WR_COPIED;
	assign(fs, itx);
}

/* A write whose data is got later: in a block of its own, or copied then. */
static void
write_later(fs_t *fs, uint64_t object, uint64_t offset, const void *data, size_t size, itx_wr_state_t state)
{
	itx_t *itx = record(TX_WRITE, sizeof (lr_write_t), "", 0);
	lr_write_t *lr = (lr_write_t *)&itx->itx_lr;
	dmu_tx_t *tx = dmu_tx_create(fs->os);

	lr->lr_foid = object;
	lr->lr_offset = offset;
	lr->lr_length = size;
	itx->itx_wr_state = state;
	itx->itx_private = fs;
	itx->itx_sync = B_TRUE;
	dmu_tx_hold_write(tx, object, offset, size);
	VERIFY0(dmu_tx_assign(tx, DMU_TX_WAIT));
	dmu_write(fs->os, object, offset, size, data, tx);
	zil_itx_assign(fs->zilog, itx, tx);
	dmu_tx_commit(tx);
}

#define	XAT0_CREATETIME	0x1
#define	XAT0_ARCHIVE	0x2
#define	XAT0_HIDDEN	0x10
#define	XAT0_PROJID	0x40000

/* lr_attr_t as it is in records: three words of bitmap. */
typedef struct {
	uint32_t masksize, bitmap[3];
	lr_attr_end_t end;
} attr_t;

static const attr_t hidden_attr = {
	.masksize = 3,
	.bitmap = { XAT0_HIDDEN | XAT0_ARCHIVE | XAT0_CREATETIME | XAT0_PROJID },
	.end = { .lr_attr_attrs = XAT0_HIDDEN, .lr_attr_crtime = { 1234567, 89 }},
};

static void
write_log(fs_t *fs)
{
	static const char target[] = "link in a log\0../created";
	static const char names[] = "created\0moved";
	static const char twins[] = "first\0second";
	static const char white[] = "third\0fourth";
	char block[131072];
	attr_t attr = hidden_attr;
	char with_attr[sizeof (attr) + 16];
	const uint64_t project = 77;
	itx_t *itx;

	make(fs, TX_CREATE, fs->root, 2001, S_IFREG | 0640, 0, "created", 8);
	write_copied(fs, 2001, 0, "written through the log", 23);
	make(fs, TX_MKDIR, fs->root, 2002, S_IFDIR | 0750, 0, "made", 5);
	make(fs, TX_SYMLINK, 2002, 2003, S_IFLNK | 0777, 0, target, sizeof (target));
	make(fs, TX_CREATE, 2002, 2004, S_IFBLK | 0600, 0x0803, "node", 5);
	make(fs, TX_MKDIR, 2002, 2005, S_IFDIR | 0700, 0, "gone", 5);
	removal(fs, TX_RMDIR, 2002, "gone");
	removal(fs, TX_REMOVE, fs->root, "hard");
	itx = record(TX_LINK, sizeof (lr_link_t), "again", 6);
	((lr_link_t *)&itx->itx_lr)->lr_doid = 2002;
	((lr_link_t *)&itx->itx_lr)->lr_link_obj = fs->text;
	assign(fs, itx);
	rename_to(fs, TX_RENAME, fs->root, 2002, names, sizeof (names));
	zil_commit(fs->zilog, 0);

	/* A file with attributes that only some systems have, and one of extended attributes. */
	memcpy(attr.end.lr_attr_scanstamp, &project, sizeof (project));
	memcpy(with_attr, &attr, sizeof (attr));
	strcpy(with_attr + sizeof (attr), "hidden");
	make(fs, TX_CREATE_ATTR, fs->root, 2006, S_IFREG | 0600, 0, with_attr, sizeof (attr) + 7);
	strcpy(with_attr + sizeof (attr), "folder");
	make(fs, TX_MKDIR_ATTR, fs->root, 2007, S_IFDIR | 0700, 0, with_attr, sizeof (attr) + 7);
	make(fs, TX_MKXATTR, 2001, 2008, S_IFDIR | 0700, 0, "", 1);
	make(fs, TX_CREATE, 2008, 2009, S_IFREG | 0644, 0, "user.apart", 11);
	write_copied(fs, 2009, 0, "a value in a file", 17);
	itx = record(TX_SETSAXATTR, sizeof (lr_setsaxattr_t), "user.log\0from the log", 21);
	((lr_setsaxattr_t *)&itx->itx_lr)->lr_foid = fs->text;
	((lr_setsaxattr_t *)&itx->itx_lr)->lr_size = 12;
	assign(fs, itx);

	/* Attributes of a file, with and without those. */
	itx = record(TX_SETATTR, sizeof (lr_setattr_t), &attr, sizeof (attr));
	lr_setattr_t *set = (lr_setattr_t *)&itx->itx_lr;
	set->lr_foid = 2001;
	set->lr_mask = LINUX_ATTR_MODE | LINUX_ATTR_UID | LINUX_ATTR_GID | LINUX_ATTR_MTIME | LINUX_ATTR_XVATTR;
	set->lr_mode = S_IFREG | 0604;
	set->lr_uid = 70;
	set->lr_gid = 80;
	set->lr_mtime[0] = 987654321;
	set->lr_mtime[1] = 12;
	assign(fs, itx);
	itx = record(TX_TRUNCATE, sizeof (lr_truncate_t), "", 0);
	((lr_truncate_t *)&itx->itx_lr)->lr_foid = 2001;
	((lr_truncate_t *)&itx->itx_lr)->lr_offset = 8;
	((lr_truncate_t *)&itx->itx_lr)->lr_length = 8;
	assign(fs, itx);

	/* An ACL: for its owner, for user 1234, for all. */
	const struct { uint32_t who, mask; uint16_t flags, type; } aces[] = {
		{ -1, 0x001f01ff, 0x1000, 0 }, { 1234, 0x00120089, 0, 0 }, { -1, 0x00120089, 0x4000, 0 },
	};
	itx = record(TX_ACL, sizeof (lr_acl_t), aces, sizeof (aces));
	((lr_acl_t *)&itx->itx_lr)->lr_foid = fs->text;
	((lr_acl_t *)&itx->itx_lr)->lr_aclcnt = 3;
	((lr_acl_t *)&itx->itx_lr)->lr_acl_bytes = sizeof (aces);
	assign(fs, itx);
	zil_commit(fs->zilog, 0);

	make(fs, TX_CREATE, fs->root, 2010, S_IFREG | 0644, 0, "first", 6);
	write_copied(fs, 2010, 0, "1st", 3);
	make(fs, TX_CREATE, fs->root, 2011, S_IFREG | 0644, 0, "second", 7);
	write_copied(fs, 2011, 0, "2nd", 3);
	make(fs, TX_CREATE, fs->root, 2012, S_IFREG | 0644, 0, "third", 6);
	rename_to(fs, TX_RENAME_EXCHANGE, fs->root, fs->root, twins, sizeof (twins));
	itx = record(TX_RENAME_WHITEOUT, sizeof (lr_rename_whiteout_t), white, sizeof (white));
	lr_rename_whiteout_t *out = (lr_rename_whiteout_t *)&itx->itx_lr;
	out->lr_rename.lr_sdoid = fs->root;
	out->lr_rename.lr_tdoid = 2002;
	LR_FOID_SET_OBJ(out->lr_wfoid, 2013);
	LR_FOID_SET_SLOTS(out->lr_wfoid, 1);
	out->lr_wmode = S_IFCHR;
	out->lr_wgen = 98;
	out->lr_wcrtime[0] = 1700000000;
	assign(fs, itx);

	/* Writes whose data is in a block of its own, is copied late, and does not fit into one log block. */
	dmu_object_info_t info;
	VERIFY0(dmu_object_info(fs->os, fs->text, &info));
	VERIFY3U(info.doi_data_block_size, <=, sizeof (block));
	memset(block, 'i', sizeof (block));
	write_later(fs, fs->text, 0, block, MIN(info.doi_data_block_size, 28000), WR_INDIRECT);
	write_later(fs, fs->text, 100, "copied late", 11, WR_NEED_COPY);
	for (int n = 0; n < 3; n++) {
		memset(block, 'A' + n, 30000);
		write_copied(fs, 2012, n * 30000, block, 30000);
		zil_commit(fs->zilog, 0);
	}
	zil_commit(fs->zilog, 0);
}

static uint64_t
look(objset_t *os, uint64_t dir, const char *name)
{
	uint64_t entry;

	VERIFY0(zap_lookup(os, dir, name, 8, 1, &entry));
	return (ZFS_DIRENT_OBJ(entry));
}

static void
make_logs(const char **names)
{
	static fs_t all[3];
	spa_t *spa;

	for (int i = 0; i < 3; i++) {
		fs_t *fs = &all[i];

		VERIFY0(dmu_objset_own(names[i], DMU_OST_ZFS, B_FALSE, B_TRUE, FTAG, &fs->os));
		VERIFY0(zap_lookup(fs->os, MASTER_NODE_OBJ, ZFS_ROOT_OBJ, 8, 1, &fs->root));
		fs->text = look(fs->os, fs->root, "text");
		fs->dir = look(fs->os, fs->root, "dir");
		fs->zilog = zil_open(fs->os, get_data, NULL);
		/* The first block of a log is known to a txg; what a log has by then does not count. */
		while (BP_IS_HOLE(&fs->zilog->zl_header->zh_log)) {
			removal(fs, TX_REMOVE, fs->root, "nothing of that name");
			zil_commit(fs->zilog, 0);
		}
		txg_wait_synced(dmu_objset_pool(fs->os), 0);
		txg_wait_synced(dmu_objset_pool(fs->os), 0);
	}
	spa = open_pool("bel");
	spa_freeze(spa);
	for (int i = 0; i < 3; i++)
		write_log(&all[i]);
}

int
main(int argc, char **argv)
{
	static const char *logged[] = { "bel/plain", "bel/gcm", "bel/ccm" };
	char full[MAXPATHLEN], small[MAXPATHLEN];

	VERIFY3S(argc, ==, 4);
	spa_config_path = "/nonexistent/zpool.cache";
	(void) snprintf(full, sizeof (full), "%s/full.stream", argv[1]);
	(void) snprintf(small, sizeof (small), "%s/small.stream", argv[1]);
	kernel_init(SPA_MODE_READ | SPA_MODE_WRITE);
	import(argv[1]);
	make_small();
	send("be/be@late", full);
	send("be/be@small", small);
	VERIFY0(spa_export("be", NULL, B_TRUE, B_FALSE));
	dmu_objset_register_type(DMU_OST_ZFS, file_info);
	if (strcmp(argv[3], "encrypted") == 0) {
		create_pool("bec", argv[2]);
		receive(full, "bec/files", ZIO_CRYPT_AES_256_GCM);
		receive(small, "bec/small", ZIO_CRYPT_AES_192_CCM);
		make_encrypted();
		VERIFY0(spa_export("bec", NULL, B_TRUE, B_FALSE));
		kernel_fini();
		return (0);
	}
	create_pool("bel", argv[2]);
	receive(small, logged[0], 0);
	receive(small, logged[1], ZIO_CRYPT_AES_256_GCM);
	receive(small, logged[2], ZIO_CRYPT_AES_128_CCM);
	make_logs(logged);
	/* No sync, no export. */
	_exit(0);
}
