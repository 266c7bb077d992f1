"""The window: puts the parts together and wires them, nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings, Qt, QTimer, Slot
from PySide6.QtGui import QCloseEvent, QGuiApplication
from PySide6.QtWidgets import (
    QFileDialog,
    QMainWindow,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from draftlight.chat.service import ChatService, GenerationOptions
from draftlight.engine.decoding import Mode
from draftlight.errors import UserError
from draftlight.history.store import HistoryStore
from draftlight.paths import models_dirs
from draftlight.settings import (
    SHOWN_LENGTH,
    ColorScheme,
    DraftLength,
    PairSettings,
    Palette,
    Settings,
)
from draftlight.ui.chat.composer import Composer
from draftlight.ui.chat.controller import ChatController, ChatWidgets
from draftlight.ui.chat.conversation_list import ConversationList
from draftlight.ui.chat.notice_bar import NoticeBar
from draftlight.ui.chat.status_bar import StatusBar
from draftlight.ui.chat.transcript import TranscriptView
from draftlight.ui.chat.welcome import Welcome, chat_page
from draftlight.ui.forge.run import Forge
from draftlight.ui.forge.screen import ForgeScreen
from draftlight.ui.jobs import JobThread, failure_sentence
from draftlight.ui.menus import add, choices
from draftlight.ui.models.listing import ListModels
from draftlight.ui.models.loading import LoadingBar, PairInForce, PairLoader
from draftlight.ui.models.picker import ModelPicker
from draftlight.ui.shortcuts import show_shortcuts
from draftlight.ui.theme import PALETTE_NAMES, SCHEME_NAMES, Legend, Theme

_SAVE_AFTER_MS = 1500
_NO_MODEL = "No model is loaded"


@dataclass(frozen=True, slots=True)
class WindowParts:
    """What the window works with. `window_file` keeps its place on the screen."""

    service: ChatService
    open_store: Callable[[], HistoryStore]
    store: HistoryStore
    settings: Settings
    save_settings: Callable[[Settings], None]
    list_models: ListModels
    forge: Forge
    default_pair: PairSettings | None
    window_file: Path


class MainWindow(QMainWindow):
    """Chats on the left; models above, conversation and composer in the middle, figures below."""

    def __init__(self, parts: WindowParts, theme: Theme) -> None:
        """Build everything; start() sets it going once the window is shown."""
        super().__init__()
        self.setWindowTitle("Draftlight")
        self._parts = parts
        self._theme = theme
        self._settings = parts.settings
        self._wanted: PairSettings | None = None  # as asked for; what works of it may differ
        self._merits: Mode | None = None  # of the pair in force
        theme.set_look(self._settings.color_scheme, self._settings.palette)
        self._engine = JobThread("engine", self)
        self._files = JobThread("files", self)
        self._reader = JobThread("chats", self)
        self.conversations = ConversationList(parts.store, self)
        self.picker = ModelPicker(self._settings, self._files, parts.list_models, self)
        self.transcript = TranscriptView(theme, self)
        self.transcript.set_highlight(self._settings.highlight)
        self.welcome = Welcome(theme, models_dirs()[-1], self)
        self.legend = Legend(theme, self)
        self.legend.show_mode(self._settings.highlight)
        self.composer = Composer(self)
        self.status = StatusBar(self)
        self.notices = NoticeBar(self)
        self.loading = LoadingBar(self)
        self.loader = PairLoader(parts.service, self._engine, self)
        self.forge = ForgeScreen(parts.forge, self)
        self.controller = ChatController(
            parts.service,
            parts.open_store,
            parts.store,
            (self._engine, self._reader),
            ChatWidgets(self.transcript, self.composer, self.conversations, self.status),
            self._options,
            self,
        )
        self.controller.system_prompt = self._settings.system_prompt
        self._saving = QTimer(self)
        self._saving.setSingleShot(True)
        self._saving.setInterval(_SAVE_AFTER_MS)
        self._saving.timeout.connect(self._save)
        self._pages = QStackedWidget(self)
        self._chat_page = chat_page(self.transcript, self.legend)
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self._arrange()
        self._connect()
        self._add_menus()
        self._restore_geometry()

    def start(self, pair: PairSettings | None) -> None:
        """List the chats, look for models, load the pair, open the last conversation."""
        self.conversations.refresh()
        self.picker.look_for_models()
        wanted = pair or self._settings.pair or self._parts.default_pair
        if wanted is not None:
            self.load(wanted)
        else:
            self.controller.set_pair(None, _NO_MODEL)
        last = self._settings.last_conversation
        if last is not None and self.conversations.lists(last):
            self.controller.open_conversation(last)
        self.composer.setFocus()

    @Slot(object)
    def load(self, pair: PairSettings) -> None:
        """Load a pair in place of the present one."""
        pair = self._wanted = replace(pair, exact=self._settings.mode == Mode.EXACT)
        self.controller.set_pair(None)
        self.picker.show_pair(pair)
        if self._settings.draft_length is None:
            self.picker.show_draft_length(self._fitting_length(pair))
        self.welcome.show_examples()
        self.loader.load(pair)

    @Slot()
    def load_again(self) -> None:
        """Load the present pair anew: its files have changed, it failed, or it was given up."""
        if self._wanted is None:
            self.notices.tell("No model is chosen yet: choose a target, or open a model file.")
        else:
            self.load(self._wanted)

    @Slot()
    def bring_to_front(self) -> None:
        """Show the window above the others: another start asked for it."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def shutdown(self) -> bool:
        """Stop all work; tell whether every thread has ended."""
        ended = [part.shutdown() for part in (self._engine, self._reader, self._files, self.forge)]
        return all(ended)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the window's place and the choices; shutdown() stops what is running once the window is gone."""
        self.forge.close()
        self._save()
        kept = QSettings(str(self._parts.window_file), QSettings.Format.IniFormat)
        kept.setValue("geometry", self.saveGeometry())
        kept.setValue("splitter", self._splitter.saveState())
        super().closeEvent(event)

    @Slot(object)
    def tell_failure(self, error: BaseException) -> None:
        """Show why something did not work."""
        self.notices.tell(failure_sentence(error))

    def _options(self) -> GenerationOptions:
        sampling = replace(self._settings.sampling.params(), temperature=self.picker.temperature)
        length = self.picker.draft_length
        return GenerationOptions(
            sampling=sampling,
            draft_length=None if length == "auto" else length,
            seed=self.picker.seed,
            max_new_tokens=self._settings.max_new_tokens,
            mode=self._settings.asked_mode,
        )

    def _fitting_length(self, pair: PairSettings) -> DraftLength:
        """Return the draft length to begin with where none was ever chosen."""
        starter = self._parts.default_pair
        is_starter = starter is not None and (pair.target, pair.draft) == (starter.target, starter.draft)
        return SHOWN_LENGTH if is_starter else "auto"

    def _arrange(self) -> None:
        self._pages.addWidget(self.welcome)
        self._pages.addWidget(self._chat_page)
        right = QWidget(self)
        column = QVBoxLayout(right)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        entry = QWidget(right)
        around = QVBoxLayout(entry)
        around.setContentsMargins(16, 8, 16, 12)
        around.addWidget(self.composer)
        for widget in (self.picker, self.loading, self.notices):
            column.addWidget(widget)
        column.addWidget(self._pages, 1)
        column.addWidget(entry)
        column.addWidget(self.status)
        self._splitter.addWidget(self.conversations)
        self._splitter.addWidget(right)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setSizes([240, 1040])
        self._splitter.setHandleWidth(1)
        self._splitter.setChildrenCollapsible(False)
        self.conversations.setMinimumWidth(180)
        self.setCentralWidget(self._splitter)

    def _connect(self) -> None:
        self.picker.pair_chosen.connect(self.load)
        self.picker.options_changed.connect(self._take_options)
        self.picker.mode_chosen.connect(self._take_mode)
        self.picker.draft_length_chosen.connect(self._take_draft_length)
        self.picker.failed.connect(self.tell_failure)
        self.picker.models_found.connect(self._choose_page)
        self.picker.models_found.connect(self.forge.show_models)
        self.loader.step.connect(self.loading.show_step)
        self.loader.ready.connect(self._on_ready)
        self.loader.failed.connect(self._on_load_failed)
        self.loader.given_up.connect(self._on_given_up)
        self.loader.ended.connect(self.loading.hide)
        self.loading.cancelled.connect(self.loader.cancel)
        self.picker.draft_wanted.connect(self._make_draft)
        self.forge.told.connect(self.status.show_making)
        self.forge.noticed.connect(self.notices.tell)
        self.forge.files_changed.connect(self.picker.look_for_models)
        self.forge.use_asked.connect(self.picker.choose)
        self.controller.failed.connect(self.tell_failure)
        self.controller.answer_failed.connect(self.picker.let_choose_again)
        self.controller.noticed.connect(self.notices.tell)
        self.controller.conversation_shown.connect(self._choose_page)
        self.controller.conversation_shown.connect(self._remember_conversation)
        self.controller.answering.connect(self._choose_page)
        self.welcome.example_chosen.connect(self.composer.suggest)
        self.welcome.file_asked.connect(self._open_file)
        self.welcome.look_asked.connect(self.picker.look_for_models)

    def _add_menus(self) -> None:
        file = self.menuBar().addMenu("&File")
        add(file, "New chat", "Ctrl+N", self.controller.new_chat)
        add(file, "Quit", "Ctrl+Q", self.close)
        models = self.menuBar().addMenu("Mod&els")
        add(models, "Open a model file …", "Ctrl+O", self._open_file)
        add(models, "Look for models again", "", self.picker.look_for_models)
        add(models, "Load the models again", "Ctrl+Shift+L", self.load_again)
        add(models, "Make a draft model …", "Ctrl+Shift+D", self._make_draft)
        chat = self.menuBar().addMenu("&Chat")
        add(chat, "Stop", "Esc", self.controller.stop)
        add(chat, "Answer again", "Ctrl+R", self.controller.regenerate)
        add(chat, "Copy the last answer", "Ctrl+Shift+C", self._copy_answer)
        chat.addSeparator()
        chat.addActions(list(self.conversations.actions_for_menu))
        add(chat, "Undo delete", "", self.conversations.undo_delete)
        view = self.menuBar().addMenu("&View")
        add(view, "Show or hide the chats", "Ctrl+B", self._toggle_sidebar)
        add(view, "Next highlight mode", "Ctrl+G", self.picker.next_highlight)
        view.addSeparator()
        self._palettes = choices(view, "Colours of tokens", PALETTE_NAMES, self._settings.palette)
        self._palettes.triggered.connect(self._take_look)
        self._schemes = choices(view, "Light and dark", SCHEME_NAMES, self._settings.color_scheme)
        self._schemes.triggered.connect(self._take_look)
        go = self.menuBar().addMenu("&Go")
        add(go, "Message field", "Ctrl+L", self.composer.setFocus)
        add(go, "Search chats", "Ctrl+K", self.conversations.focus_search)
        add(go, "Choose the target", "Ctrl+Shift+M", self.picker.focus_target)
        help_menu = self.menuBar().addMenu("&Help")
        add(help_menu, "Shortcuts", "Ctrl+/", self._show_shortcuts)

    def _restore_geometry(self) -> None:
        kept = QSettings(str(self._parts.window_file), QSettings.Format.IniFormat)
        geometry, splitter = kept.value("geometry"), kept.value("splitter")
        if not isinstance(geometry, QByteArray) or not self.restoreGeometry(geometry):
            self.resize(1280, 800)
        if isinstance(splitter, QByteArray):
            self._splitter.restoreState(splitter)

    @Slot(object)
    def _on_ready(self, loaded: PairInForce) -> None:
        self._put_in_force(loaded)
        for notice in loaded.ready.notices:
            self.notices.tell(notice)
        self._settings = self._settings.changed(pair=loaded.asked)
        self._saving.start()

    def _put_in_force(self, loaded: PairInForce) -> None:
        self._wanted = loaded.asked
        self._merits = loaded.ready.best_mode
        self.controller.set_pair(loaded.ready)
        self.forge.show_pair(loaded.asked)
        self.picker.show_pair(loaded.ready.settings, loaded.asked)

    @Slot(object)
    def _on_load_failed(self, error: BaseException) -> None:
        self.tell_failure(error)
        self._on_given_up(None)

    @Slot(object)
    def _on_given_up(self, loaded: PairInForce | None) -> None:
        """Go on with the pair that is still loaded, if any."""
        if loaded is not None:
            self._put_in_force(loaded)
            return
        self.controller.set_pair(None, _NO_MODEL)
        self.picker.let_choose_again()

    @Slot()
    def _choose_page(self) -> None:
        self._pages.setCurrentWidget(self._chat_page if self.transcript.messages else self.welcome)
        usable = any(not model.why_not_chat for model in self.picker.models)
        if usable or self.loader.loading or self.picker.has_pair:
            self.welcome.show_examples()
        else:
            self.welcome.show_no_model()

    @Slot(object)
    def _remember_conversation(self, conversation_id: int | None) -> None:
        self._settings = self._settings.changed(last_conversation=conversation_id)
        self._saving.start()

    @Slot()
    def _take_mode(self) -> None:
        self._take_options()
        exact = self._settings.mode == Mode.EXACT
        if exact and self._merits is Mode.FAST and self._wanted is not None and not self._wanted.exact:
            self.load(self._wanted)  # with a type of cache that is exact, whatever it costs

    @Slot()
    def _take_options(self) -> None:
        sampling = self._settings.sampling.model_copy(update={"temperature": self.picker.temperature})
        self._settings = self._settings.changed(
            sampling=sampling, mode=self.picker.mode, highlight=self.picker.highlight
        )
        self.transcript.set_highlight(self.picker.highlight)
        self.legend.show_mode(self.picker.highlight)
        self._saving.start()

    @Slot()
    def _take_draft_length(self) -> None:
        self._settings = self._settings.changed(draft_length=self.picker.draft_length)
        self._saving.start()

    @Slot()
    def _take_look(self) -> None:
        palette, scheme = self._palettes.checkedAction(), self._schemes.checkedAction()
        self._settings = self._settings.changed(
            palette=Palette(palette.data()), color_scheme=ColorScheme(scheme.data())
        )
        self._theme.set_look(self._settings.color_scheme, self._settings.palette)
        self._saving.start()

    @Slot()
    def _save(self) -> None:
        self._saving.stop()
        try:
            self._parts.save_settings(self._settings)
        except UserError as error:
            self.tell_failure(error)

    @Slot()
    def _open_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a model file", "", "GGUF models (*.gguf)")
        if name:
            self.load(PairSettings(Path(name)))

    @Slot()
    def _make_draft(self) -> None:
        self.forge.open(self.picker.models, self._wanted)

    @Slot()
    def _copy_answer(self) -> None:
        answers = [message for message in self.transcript.messages if not message.from_person]
        if answers:
            last = answers[-1]
            QGuiApplication.clipboard().setText(last.text if last.trace is None else last.trace.text)

    @Slot()
    def _toggle_sidebar(self) -> None:
        self.conversations.setVisible(not self.conversations.isVisible())

    @Slot()
    def _show_shortcuts(self) -> None:
        show_shortcuts(self)
